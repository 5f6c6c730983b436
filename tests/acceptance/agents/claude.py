"""Claude Code: installs it, starts it and parses its output.

Flags and variables are those of 2.1.197, the pinned version; try a newer one before you move the pin.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from acceptance.agents.agent import PROMPT, Agent, Wiring
from acceptance.agents.install import AgentPackage
from acceptance.agents.process import Dialogue, Exit, Rooms
from acceptance.agents.record import AgentRun
from acceptance.agents.stream_json import read_run

PACKAGE = AgentPackage(name="claude-code", binary="node_modules/@anthropic-ai/claude-code-*/claude")
SERVER = "codesdk"
"""The MCP server's name in its configuration, so its tools are `mcp__codesdk__*`."""
CONNECT_LIMIT_S = 20.0


class ClaudeCode(Agent):
    """One run in print mode. As a dialogue it reads its prompt as a program would give it, and asks that program back.

    Nobody answers what it asks there.
    """

    def __init__(
        self,
        program: Path,
        folder: Path,
        wiring: Wiring,
        *,
        dialogue: bool = False,
    ) -> None:
        sandbox_registry = Rooms.beneath(folder)
        config = sandbox_registry.home / "mcp.json"
        config.write_text(json.dumps(mcp_config(wiring)), encoding="utf-8")
        line = command(program, config, dialogue=dialogue)
        super().__init__(sandbox_registry, line, variables(wiring), led() if dialogue else None)

    def read(self, end: Exit) -> AgentRun:
        """Its stream."""
        return read_run(end.lines, exit_code=end.code, stderr_tail=end.stderr_tail)


def command(program: Path, config: Path, *, dialogue: bool = False) -> list[str]:
    """The command line: no built-in tools, no settings or memory files, no MCP server but ours."""
    asked = ["--input-format", "stream-json"] if dialogue else [PROMPT]
    line = [str(program), "-p", *asked, "--output-format", "stream-json", "--verbose", "--model", "claude-sonnet-4-5"]
    line += ["--bare", "--tools", "", "--strict-mcp-config", "--mcp-config", str(config)]
    # Nobody sits at this terminal; the MCP host decides, so its whole server is allowed here.
    return [*line, "--allowedTools", f"mcp__{SERVER}"]


def led() -> Dialogue:
    """The prompt of a dialogue, as one line; its result ends it."""
    message = {"role": "user", "content": [{"type": "text", "text": PROMPT}]}
    line = json.dumps({"type": "user", "message": message}) + "\n"
    return Dialogue(says=line.encode(), over=b'"type":"result"')


def mcp_config(wiring: Wiring) -> dict[str, Any]:
    """The MCP configuration; the token stays out of the file and comes from the environment."""
    server = {
        "type": "http",
        "url": wiring.mcp_url,
        "headers": {"Authorization": "Bearer ${CODESDK_TOKEN}"},
        "timeout": wiring.call_limit_ms,
    }
    return {"mcpServers": {SERVER: server}}


def variables(wiring: Wiring) -> dict[str, str]:
    """Its environment, beyond what every agent gets."""
    return {
        "ANTHROPIC_BASE_URL": wiring.model_url,
        "ANTHROPIC_API_KEY": "scripted-model-needs-no-key",
        "CODESDK_TOKEN": wiring.token,
        "CLAUDE_CODE_MAX_RETRIES": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "MCP_TIMEOUT": str(int(CONNECT_LIMIT_S * 1000)),
        "MCP_TOOL_TIMEOUT": str(wiring.call_limit_ms),
        # Off: it counts silence and would end a call that waits for a person, whatever the limit above says.
        "CLAUDE_CODE_MCP_TOOL_IDLE_TIMEOUT": "0",
    }
