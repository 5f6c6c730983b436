"""Codex: installs it, starts it and parses its output.

Keys and variables are those of 0.171.0, the pinned version; try a newer one before you move the pin.
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

PACKAGE = AgentPackage(name="codex", binary="node_modules/@openai/codex-linux-*/vendor/*/bin/codex")
SERVER = "codesdk"
"""The MCP server's name in its configuration, so its tools stand in the namespace `mcp__codesdk`."""
OFF = (
    "shell_tool",
    "unified_exec",
    "view_image",
    "multi_agent",
    "goals",
    "apps",
    "plugins",
    "image_generation",
    "skill_search",
    "tool_suggest",
    "sleep_tool",
    "hooks",
)
"""Features that are built-in tools. What is left lists and reads MCP resources, and asks its user."""


class Codex(Agent):
    """One run of `codex exec`, where nobody can be asked: it declines what an MCP server would ask its user."""

    def __init__(self, program: Path, folder: Path, wiring: Wiring) -> None:
        """The limit of a call is hard here, whatever progress the server tells."""
        sandbox_registry = Rooms.beneath(folder)
        home = sandbox_registry.home / ".codex"
        home.mkdir()
        (home / "config.toml").write_text(config(wiring), encoding="utf-8")
        line = [str(program), "exec", "--json", "--skip-git-repo-check", PROMPT]
        super().__init__(sandbox_registry, line, variables(home, wiring))

    def read(self, end: Exit) -> AgentRun:
        """Its events."""
        return read_run(end.lines, exit_code=end.code, stderr_tail=end.stderr_tail)


def config(wiring: Wiring) -> str:
    """Its configuration: no model but the scripted one, no tools but ours; the token comes from the environment."""
    features = "\n".join(f"{name} = false" for name in OFF)
    return f"""\
model = "scripted"
model_provider = "scripted"
web_search = "disabled"
project_doc_max_bytes = 0

[model_providers.scripted]
name = "Scripted"
base_url = {json.dumps(f"{wiring.model_url}/v1")}
env_key = "SCRIPTED_API_KEY"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0

[mcp_servers.{SERVER}]
url = {json.dumps(wiring.mcp_url)}
bearer_token_env_var = "CODESDK_TOKEN"
tool_timeout_sec = {wiring.call_limit_s}
required = true
default_tools_approval_mode = "approve"

[features]
{features}
"""


def variables(home: Path, wiring: Wiring) -> dict[str, str]:
    """Its environment, beyond what every agent gets."""
    return {"CODEX_HOME": str(home), "CODESDK_TOKEN": wiring.token, "SCRIPTED_API_KEY": "scripted-model-needs-no-key"}


def read_run(lines: Iterable[str], *, exit_code: int | None, stderr_tail: str = "") -> AgentRun:
    """A run, from its events. They name no servers and no tools: ours is `required`, so a turn that began is connected."""
    events = parse_lines(lines)
    kinds = {event["type"] for event in events}
    items = [event["item"] for event in events if event["type"] == "item.completed"]
    texts = [item["text"] for item in items if item["type"] == "agent_message"]
    return AgentRun(
        final_text=texts[-1] if texts else None,
        failed="turn.completed" not in kinds or bool(kinds & {"error", "turn.failed"}),
        outcomes=tuple(_outcome(item) for item in items if item["type"] == "mcp_tool_call"),
        servers={SERVER: "connected"} if "turn.started" in kinds else {},
        tools=(),
        exit_code=exit_code,
        stderr_tail=stderr_tail,
    )


def _outcome(item: dict[str, Any]) -> ToolOutcome:
    result, error = item.get("result") or {}, item.get("error") or {}
    texts = [part.get("text", "") for part in result.get("content") or ()]
    return ToolOutcome(
        call_id=item["id"],
        tool=f"mcp__{item['server']}__{item['tool']}",
        text="\n".join(texts) if result else str(error.get("message", "")),
        is_error=item["status"] != "completed",
    )
