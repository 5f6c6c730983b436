"""Scripts of the model: plain data that a test writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Say:
    """Words of the model."""

    text: str


@dataclass(frozen=True)
class Call:
    """One tool call. `tool` is the tool's own name; each CLI's prefix (`mcp__server__…`) is found in the request."""

    tool: str
    args: Mapping[str, Any]


Step = Say | Call


@dataclass(frozen=True)
class Script:
    """Turns in order; a turn's calls are made in parallel. Then come closing words that quote what the tools gave."""

    turns: tuple[tuple[Step, ...], ...]
    closing: str = "Done."


def script(*turns: Step | Sequence[Step], closing: str = "Done.") -> Script:
    """A script of turns; a step that stands alone is a turn of its own.

    Raises:
        ValueError: a turn without a call; the agent would take it for the end of the conversation.
    """
    whole = tuple((turn,) if isinstance(turn, Say | Call) else tuple(turn) for turn in turns)
    for turn in whole:
        if not any(isinstance(step, Call) for step in turn):
            raise ValueError(f"A turn needs at least one Call; say last words with `closing`: {turn}")
    return Script(turns=whole, closing=closing)
