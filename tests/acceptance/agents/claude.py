"""Claude Code: how it is installed, started and read.

Flags and variables are those of 2.1.197, the pinned version; a newer one must be tried before the pin moves.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from acceptance.agents.install import AgentPackage
from acceptance.agents.process import AgentProcess, Rooms, private_env
from acceptance.agents.record import AgentRun, ToolOutcome

PACKAGE = AgentPackage(name="claude-code", binary="node_modules/@anthropic-ai/claude-code-*/claude")
SERVER = "codesdk"
"""The MCP server's name in its configuration, so its tools are `mcp__codesdk__*`."""
CALL_LIMIT_S = 120.0
"""How long it waits for one tool call. Its own limit differs by version (300 s without progress here), so it is set."""
CONNECT_LIMIT_S = 20.0
RUN_LIMIT_S = 60.0
"""A run takes one to three seconds; a busy machine may need ten times that."""


class ClaudeCode:
    """One run in print mode; a context manager, so that a failing test leaves no process behind."""

    def __init__(
        self,
        program: Path,
        folder: Path,
        *,
        model_url: str,
        mcp_url: str,
        token: str,
        prompt: str = "Do what the script says.",
        call_limit_s: float = CALL_LIMIT_S,
    ) -> None:
        self._rooms = Rooms.beneath(folder)
        config = self._rooms.home / "mcp.json"
        config.write_text(json.dumps(mcp_config(mcp_url, call_limit_s)), encoding="utf-8")
        env = private_env(self._rooms, variables(model_url, token, call_limit_s))
        self._process = AgentProcess(command(program, prompt, config), env, self._rooms)

    @property
    def work(self) -> Path:
        """Its working directory on the host, where a built-in tool would leave its traces."""
        return self._rooms.work

    @property
    def running(self) -> bool:
        """Whether it still lives."""
        return self._process.running

    def __enter__(self) -> Self:
        self._process.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.__exit__(kind, error, at)

    def finish(self, time_limit_s: float = RUN_LIMIT_S) -> AgentRun:
        """Wait for its end, kill what is left, and say what happened."""
        end = self._process.finish(time_limit_s)
        return read_run(end.lines, exit_code=end.code, stderr_tail=end.stderr_tail)


def command(program: Path, prompt: str, config: Path) -> list[str]:
    """The command line: no built-in tools, no settings or memory files, no MCP server but ours."""
    line = [str(program), "-p", prompt, "--output-format", "stream-json", "--verbose", "--model", "claude-sonnet-4-5"]
    line += ["--bare", "--tools", "", "--strict-mcp-config", "--mcp-config", str(config)]
    # Nobody sits at this terminal; the MCP host decides, so its whole server is allowed here.
    return [*line, "--allowedTools", f"mcp__{SERVER}"]


def mcp_config(url: str, call_limit_s: float) -> dict[str, Any]:
    """The MCP configuration; the token stays out of the file and comes from the environment."""
    server = {
        "type": "http",
        "url": url,
        "headers": {"Authorization": "Bearer ${CODESDK_TOKEN}"},
        "timeout": int(call_limit_s * 1000),
    }
    return {"mcpServers": {SERVER: server}}


def variables(model_url: str, token: str, call_limit_s: float) -> dict[str, str]:
    """Its environment, beyond what every agent gets."""
    return {
        "ANTHROPIC_BASE_URL": model_url,
        "ANTHROPIC_API_KEY": "scripted-model-needs-no-key",
        "CODESDK_TOKEN": token,
        "CLAUDE_CODE_MAX_RETRIES": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "MCP_TIMEOUT": str(int(CONNECT_LIMIT_S * 1000)),
        "MCP_TOOL_TIMEOUT": str(int(call_limit_s * 1000)),
        # Off: it counts silence and would end a call that waits for a person, whatever the limit above says.
        "CLAUDE_CODE_MCP_TOOL_IDLE_TIMEOUT": "0",
    }


def read_run(lines: Iterable[str], *, exit_code: int | None, stderr_tail: str = "") -> AgentRun:
    """Its stream-json output as a record. A last line that a kill cut in half is passed over; any other must be JSON."""
    events = _parse(list(lines))
    opening = next((event for event in events if (event["type"], event.get("subtype")) == ("system", "init")), {})
    end = next((event for event in events if event["type"] == "result"), {})
    names = {block["id"]: block["name"] for block in _blocks(events, "assistant") if block["type"] == "tool_use"}
    return AgentRun(
        final_text=end.get("result"),
        failed=bool(end.get("is_error", True)),
        outcomes=tuple(
            ToolOutcome(
                call_id=block["tool_use_id"],
                tool=names.get(block["tool_use_id"], "?"),
                text=_text(block.get("content")),
                is_error=bool(block.get("is_error")),
            )
            for block in _blocks(events, "user")
            if block["type"] == "tool_result"
        ),
        servers={server["name"]: server["status"] for server in opening.get("mcp_servers", ())},
        tools=tuple(opening.get("tools", ())),
        exit_code=exit_code,
        stderr_tail=stderr_tail,
    )


def _parse(lines: list[str]) -> list[dict[str, Any]]:
    events = []
    for number, line in enumerate(lines):
        try:
            events.append(json.loads(line))
        except ValueError:
            if number != len(lines) - 1:
                raise
    return events


def _blocks(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    contents = [event["message"]["content"] for event in events if event["type"] == kind]
    return [block for content in contents if not isinstance(content, str) for block in content]


def _text(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(part["text"] for part in content if part["type"] == "text")
