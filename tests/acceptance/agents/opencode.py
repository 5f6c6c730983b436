"""OpenCode: installs it, starts it and parses its output.

Keys and variables are those of 1.18.33, the pinned version, which cancels every call once more after its answer. Try a
newer one before you move the pin.
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

PACKAGE = AgentPackage(name="opencode", binary="node_modules/opencode-linux-*64/bin/opencode")
SERVER = "codesdk"
"""The MCP server's name in its configuration, so its tools are `codesdk_*`."""
MODEL = "scripted/scripted"


class OpenCode(Agent):
    """One run of `opencode run`."""

    def __init__(self, program: Path, folder: Path, wiring: Wiring) -> None:
        """The limit of a call counts from the last progress that the server told."""
        line = [str(program), "run", "--format", "json", "--model", MODEL, PROMPT]
        super().__init__(Rooms.beneath(folder), line, variables(wiring))

    def read(self, end: Exit) -> AgentRun:
        """Its events."""
        return read_run(end.lines, exit_code=end.code, stderr_tail=end.stderr_tail)


def config(wiring: Wiring) -> dict[str, Any]:
    """Its configuration: no built-in tools, no model but the scripted one; the token comes from the environment."""
    provider = {
        "npm": "@ai-sdk/openai-compatible",  # comes with it
        "options": {"baseURL": f"{wiring.model_url}/v1", "apiKey": "scripted-model-needs-no-key"},
        "models": {"scripted": {"name": "Scripted", "limit": {"context": 128_000, "output": 8_000}}},
    }
    server = {
        "type": "remote",
        "url": wiring.mcp_url,
        "headers": {"Authorization": "Bearer {env:CODESDK_TOKEN}"},
        "timeout": wiring.call_limit_ms,
        "oauth": False,
    }
    return {
        "provider": {"scripted": provider},
        "model": MODEL,
        "mcp": {SERVER: server},
        "permission": {"*": "deny", f"{SERVER}_*": "allow"},
        "autoupdate": False,
        "share": "disabled",
        "snapshot": False,
    }


def variables(wiring: Wiring) -> dict[str, str]:
    """Its environment, beyond what every agent gets."""
    return {
        "CODESDK_TOKEN": wiring.token,
        "OPENCODE_CONFIG_CONTENT": json.dumps(config(wiring)),
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        "OPENCODE_DISABLE_PROJECT_CONFIG": "1",
        "OPENCODE_DISABLE_CLAUDE_CODE": "1",
    }


def read_run(lines: Iterable[str], *, exit_code: int | None, stderr_tail: str = "") -> AgentRun:
    """A run, from its events. They name no servers and no tools: ours counts as connected where it answered a call."""
    events = parse_lines(lines)
    parts = [event["part"] for event in events if event["type"] in ("tool_use", "text")]
    outcomes = tuple(_outcome(part) for part in parts if part["type"] == "tool")
    ours = any(outcome.tool.startswith(f"{SERVER}_") for outcome in outcomes)
    texts = [part["text"] for part in parts if part["type"] == "text"]
    return AgentRun(
        final_text=texts[-1] if texts else None,
        failed=any(event["type"] == "error" for event in events),
        outcomes=outcomes,
        servers={SERVER: "connected"} if ours else {},
        tools=(),
        exit_code=exit_code,
        stderr_tail=stderr_tail,
    )


def _outcome(part: dict[str, Any]) -> ToolOutcome:
    state = part["state"]
    failed = state["status"] != "completed"
    return ToolOutcome(
        call_id=part["callID"],
        tool=part["tool"],
        text=str(state.get("error" if failed else "output") or ""),
        is_error=failed,
    )
