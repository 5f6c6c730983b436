"""Kimi Code: installs it, starts it and parses its output.

Keys and variables are those of 2.1.0, the pinned version. It needs Node 22.19 or newer, so it brings its own. Try a
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

PACKAGE = AgentPackage(name="kimi-code", binary="node_modules/node-linux-*/bin/node")
"""Its program is a script; what is installed as a program is the Node that runs it."""
SCRIPT = "@moonshot-ai/kimi-code/dist/main.mjs"
SERVER = "codesdk"
"""The MCP server's name in its configuration, so its tools are `mcp__codesdk__*`."""
ONLY_OURS = f"""\
---
name: {SERVER}
description: Has our tools alone.
tools:
  - mcp__{SERVER}__*
---
Do what you are asked.
"""
"""An agent of its own kind, which has no built-in tools."""


class KimiCode(Agent):
    """One run in print mode."""

    def __init__(self, program: Path, folder: Path, wiring: Wiring) -> None:
        """The limit of a call is hard here, whatever progress the server tells."""
        sandbox_registry = Rooms.beneath(folder)
        home = sandbox_registry.home / ".kimi-code"
        (home / "agents").mkdir(parents=True)
        (home / "mcp.json").write_text(json.dumps(mcp_config(wiring)), encoding="utf-8")
        (home / "agents" / f"{SERVER}.md").write_text(ONLY_OURS, encoding="utf-8")
        super().__init__(sandbox_registry, command(program), variables(wiring))

    def read(self, end: Exit) -> AgentRun:
        """Its lines."""
        return read_run(end.lines, exit_code=end.code, stderr_tail=end.stderr_tail)


def script(program: Path) -> Path:
    """What that Node runs."""
    return program.parents[2] / SCRIPT


def command(program: Path) -> list[str]:
    """The command line."""
    return [str(program), str(script(program)), "--agent", SERVER, "-p", PROMPT, "--output-format", "stream-json"]


def mcp_config(wiring: Wiring) -> dict[str, Any]:
    """The MCP configuration, in a file that only this run's home holds."""
    server = {"url": wiring.mcp_url, "headers": wiring.bearer, "toolTimeoutMs": wiring.call_limit_ms}
    return {"mcpServers": {SERVER: server}}


def variables(wiring: Wiring) -> dict[str, str]:
    """Its environment, beyond what every agent gets."""
    return {
        "KIMI_MODEL_NAME": "scripted",
        "KIMI_MODEL_API_KEY": "scripted-model-needs-no-key",
        "KIMI_MODEL_PROVIDER_TYPE": "openai",
        "KIMI_MODEL_BASE_URL": f"{wiring.model_url}/v1",
        "KIMI_CODE_NO_AUTO_UPDATE": "1",
    }


def read_run(lines: Iterable[str], *, exit_code: int | None, stderr_tail: str = "") -> AgentRun:
    """A run, from its lines, which are a chat's messages. They name no servers: ours counts as connected where it was called."""
    messages = parse_lines(lines)
    said = [message for message in messages if message["role"] == "assistant"]
    calls = [call for message in said for call in message.get("tool_calls") or ()]
    named = {call["id"]: call["function"]["name"] for call in calls}
    ours = any(name.startswith(f"mcp__{SERVER}__") for name in named.values())
    answer = said[-1] if said and not said[-1].get("tool_calls") else {}
    return AgentRun(
        final_text=answer.get("content") or None,
        failed=not answer,
        outcomes=tuple(
            ToolOutcome(
                message["tool_call_id"], named.get(message["tool_call_id"], "?"), str(message["content"]), False
            )
            for message in messages
            if message["role"] == "tool"
        ),
        servers={SERVER: "connected"} if ours else {},
        tools=(),
        exit_code=exit_code,
        stderr_tail=stderr_tail,
    )
