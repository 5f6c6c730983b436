"""Parses the stream that Claude Code and Qwen Code print with `--output-format stream-json` into a record."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from acceptance.agents.agent import parse_lines
from acceptance.agents.record import AgentRun, ToolOutcome


def read_run(lines: Iterable[str], *, exit_code: int | None, stderr_tail: str = "") -> AgentRun:
    """A run, from the lines of its stream."""
    events = parse_lines(lines)
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


def _blocks(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    contents = [event["message"]["content"] for event in events if event["type"] == kind]
    return [block for content in contents if not isinstance(content, str) for block in content]


def _text(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(part["text"] for part in content if part["type"] == "text")
