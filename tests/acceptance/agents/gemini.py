"""Gemini CLI: installs it, starts it and parses its output.

Keys and variables are those of 0.61.0, the pinned version; try a newer one before you move the pin.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from acceptance.agents.agent import PROMPT, Agent, Wiring, parse_lines
from acceptance.agents.install import AgentPackage
from acceptance.agents.process import Exit, Rooms
from acceptance.agents.record import AgentRun, ToolOutcome

PACKAGE = AgentPackage(name="gemini-cli", binary="node_modules/@google/gemini-cli/bundle/gemini.js")
SERVER = "codesdk"
"""The MCP server's name in its configuration, so its tools are `mcp_codesdk_*`."""
MODEL = "gemini-2.5-flash"
"""It asks for no other of itself; a name that it does not know it may replace."""
ONLY_OURS = f"""\
[[rule]]
toolName = "*"
decision = "deny"
priority = 100

[[rule]]
mcpName = "{SERVER}"
toolName = "*"
decision = "allow"
priority = 500
"""
"""Its own policy: the built-in tools are not offered, ours are and need nobody's word."""


class GeminiCli(Agent):
    """One headless run."""

    def __init__(self, program: Path, folder: Path, wiring: Wiring) -> None:
        """The limit of a call is hard here, whatever progress the server tells."""
        sandbox_registry = Rooms.beneath(folder)
        home = sandbox_registry.home / ".gemini"
        home.mkdir()
        (home / "settings.json").write_text(json.dumps(settings(wiring)), encoding="utf-8")
        policy = home / "only-ours.toml"
        policy.write_text(ONLY_OURS, encoding="utf-8")
        super().__init__(sandbox_registry, command(program, policy), variables(wiring))

    def read(self, end: Exit) -> AgentRun:
        """Its stream."""
        return read_run(end.lines, exit_code=end.code, stderr_tail=end.stderr_tail)


def command(program: Path, policy: Path) -> list[str]:
    """The command line."""
    line = [str(program), "-m", MODEL, "--output-format", "stream-json", "--policy", str(policy)]
    return [*line, "-p", PROMPT]


def settings(wiring: Wiring) -> dict[str, Any]:
    """Its settings, in a file that only this run's home holds: no memory files, no telemetry, no server but ours."""
    server = {
        "httpUrl": wiring.mcp_url,
        "headers": wiring.bearer,
        "timeout": wiring.call_limit_ms,
        "trust": True,
    }
    return {
        "mcpServers": {SERVER: server},
        "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"maxAttempts": 1, "enableAutoUpdate": False},
        "context": {"fileName": ["NO_SUCH.md"]},
    }


def variables(wiring: Wiring) -> dict[str, str]:
    """Its environment, beyond what every agent gets."""
    return {
        "GEMINI_API_KEY": "scripted-model-needs-no-key",
        "GOOGLE_GEMINI_BASE_URL": wiring.model_url,
        # Else it starts itself a second time, and that process outlives signals to the first.
        "GEMINI_CLI_NO_RELAUNCH": "true",
    }


def read_run(lines: Iterable[str], *, exit_code: int | None, stderr_tail: str = "") -> AgentRun:
    """A run, from its stream, which names no servers and no tools: ours counts as connected where a call of it was made."""
    events = parse_lines(lines)
    named = {event["tool_id"]: event["tool_name"] for event in events if event["type"] == "tool_use"}
    end = next((event for event in events if event["type"] == "result"), {})
    ours = any(name.startswith(f"mcp_{SERVER}_") for name in named.values())
    return AgentRun(
        final_text=_last_words(events) or None,
        failed=end.get("status") != "success",
        outcomes=tuple(_outcome(event, named) for event in events if event["type"] == "tool_result"),
        servers={SERVER: "connected"} if ours else {},
        tools=(),
        exit_code=exit_code,
        stderr_tail=stderr_tail,
    )


def _last_words(events: list[dict[str, Any]]) -> str:
    """Its words come in pieces; those after the last tool call are the answer."""
    said = ""
    for event in events:
        if event["type"] == "tool_use":
            said = ""
        elif event["type"] == "message" and event.get("role") == "assistant":
            said += event.get("content", "")
    return said


def _outcome(event: dict[str, Any], named: dict[str, str]) -> ToolOutcome:
    failed = event["status"] != "success"
    error = event.get("error") or {}
    return ToolOutcome(
        call_id=event["tool_id"],
        tool=named.get(event["tool_id"], "?"),
        text=str(event.get("output") or error.get("message") or ""),
        is_error=failed,
    )
