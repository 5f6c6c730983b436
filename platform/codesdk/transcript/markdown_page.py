"""Renders a transcript as Markdown. Agent and tool output is in fences that it can't close."""

from __future__ import annotations

import re

from codesdk.transcript.fold import Transcript
from codesdk.transcript.rendering import render_block, summary


def render(transcript: Transcript) -> str:
    """Render the page."""
    parts = [f"# Session {_span(transcript.session_id)}", _facts(transcript)]
    for entry in transcript.entries:
        parts.append(f"## {entry.message.role} · {_span(entry.time)}")
        for piece in map(render_block, entry.message.content):
            if piece.heading:
                parts.append(_span(piece.heading))
            parts.append(_fence(piece.body))
    return "\n\n".join(parts) + "\n"


def _facts(transcript: Transcript) -> str:
    return "\n".join(f"* {name}: {_span(value)}" for name, value in summary(transcript))


def _span(text: str) -> str:
    # On one line, with more backticks around it than inside, so that nothing in it is markup.
    tick = "`" * (_longest_run(text) + 1)
    return f"{tick} {text} {tick}" if "`" in text else f"{tick}{text}{tick}"


def _fence(text: str) -> str:
    fence = "`" * max(3, _longest_run(text) + 1)
    return f"{fence}text\n{text}\n{fence}"


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)
