"""Rendering that the HTML and Markdown pages share. All agent and tool output is treated as hostile."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from codesdk.domain.content import ArtifactBlock, CodeBlock, TextBlock, ToolUseBlock, TranscriptBlock
from codesdk.transcript.fold import Transcript
from codesdk.transcript.usage import USAGE_FIELDS


class Piece(NamedTuple):
    """A rendered block: a short heading, and its body as plain text."""

    heading: str
    body: str
    is_error: bool = False


def escape_control(text: str) -> str:
    """Make control and bidirectional characters visible. Line breaks and tabs stay."""
    return "".join(c if c.isprintable() or c in "\n\t" else repr(c)[1:-1] for c in text)


def line(text: str) -> str:
    """Make control characters visible, and put the text on one line."""
    return escape_control(text).replace("\n", "\\n").replace("\t", " ")


def render_block(block: TranscriptBlock) -> Piece:
    """Render a block for reading."""
    match block:
        case TextBlock():
            return Piece("", escape_control(block.text))
        case CodeBlock():
            return Piece(line(block.language or "code"), escape_control(block.code))
        case ArtifactBlock():
            return Piece("artifact", line(f"{block.artifact_id} {block.name or ''} {block.content_type or ''}").strip())
        case ToolUseBlock():
            return Piece(line(f"{block.name} ({block.tool_call_id})"), _json(block.input))
        case _:
            heading = f"{'error of' if block.is_error else 'result of'} {block.tool_call_id}"
            body = escape_control(block.result) if isinstance(block.result, str) else _json(block.result)
            return Piece(line(heading), body, bool(block.is_error))


def summary(transcript: Transcript) -> list[tuple[str, str]]:
    """Return the facts shown above the conversation."""
    used = {name: getattr(transcript.usage, name) for name in USAGE_FIELDS}
    usage = [f"{name} {value:g}" for name, value in used.items() if value is not None]
    estimated = " (some of the cost is estimated)" if transcript.usage.cost_is_estimated else ""
    tasks = [
        f"{task.id} {task.state}{f' ({task.error.code})' if task.error else ''}{f': {task.reason}' if task.reason else ''}"
        for task in transcript.tasks
    ]
    return [
        ("runtime", line(transcript.runtime)),
        ("events", str(transcript.last_seq)),
        ("usage", (", ".join(usage) + estimated) if usage else "not reported"),
        *(("task", line(task)) for task in tasks),
    ]


def _json(value: Any) -> str:
    return escape_control(json.dumps(value, ensure_ascii=False, indent=2))
