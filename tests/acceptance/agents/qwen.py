"""Qwen Code: installs it, starts it and parses its output.

Flags and variables are those of 0.15.10, the pinned version, which sends a timed-out call again up to three times. Try
a newer one before you move the pin.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from acceptance.agents.agent import PROMPT, Agent, Wiring
from acceptance.agents.install import AgentPackage
from acceptance.agents.process import Exit, Rooms
from acceptance.agents.record import AgentRun
from acceptance.agents.stream_json import read_run

PACKAGE = AgentPackage(name="qwen-code", binary="node_modules/@qwen-code/qwen-code/cli.js")
SERVER = "codesdk"
"""The MCP server's name in its configuration, so its tools are `mcp__codesdk__*`."""
NOT_OURS = ("agent", "ask_user_question", "exit_plan_mode", "send_message", "skill", "task_stop", "tool_search")
"""Built-in tools that `--core-tools none` leaves; behind `tool_search` the model would not see ours either."""


class QwenCode(Agent):
    """One run in print mode."""

    def __init__(self, program: Path, folder: Path, wiring: Wiring) -> None:
        """The limit of a call is hard here, whatever progress the server tells; it calls again, in a new MCP session."""
        sandbox_registry = Rooms.beneath(folder)
        config = sandbox_registry.home / "mcp.json"
        config.write_text(json.dumps(mcp_config(wiring)), encoding="utf-8")
        super().__init__(sandbox_registry, command(program, config), variables(wiring))

    def read(self, end: Exit) -> AgentRun:
        """Its stream."""
        return read_run(end.lines, exit_code=end.code, stderr_tail=end.stderr_tail)


def command(program: Path, config: Path) -> list[str]:
    """The command line: no built-in tools, no MCP server but ours, whose tools all may run: the MCP host decides."""
    line = [str(program), "--auth-type", "openai", "--output-format", "stream-json", "--mcp-config", str(config)]
    line += ["--include-partial-messages"]  # with it, it prints what progress says
    line += ["--core-tools", "none", "--exclude-tools", ",".join(NOT_OURS), "--allowed-mcp-server-names", SERVER]
    return [*line, "--approval-mode", "yolo", "-p", PROMPT]


def mcp_config(wiring: Wiring) -> dict[str, Any]:
    """The MCP configuration, in a file that only this run's home holds."""
    server = {"httpUrl": wiring.mcp_url, "headers": wiring.bearer, "timeout": wiring.call_limit_ms}
    return {"mcpServers": {SERVER: server}}


def variables(wiring: Wiring) -> dict[str, str]:
    """Its environment, beyond what every agent gets."""
    return {
        "OPENAI_API_KEY": "scripted-model-needs-no-key",
        "OPENAI_BASE_URL": f"{wiring.model_url}/v1",
        "OPENAI_MODEL": "scripted",
        "QWEN_CODE_NO_RELAUNCH": "true",
        # It sends loopback through a proxy too, whatever NO_PROXY says.
        "HTTP_PROXY": "",
        "HTTPS_PROXY": "",
    }
