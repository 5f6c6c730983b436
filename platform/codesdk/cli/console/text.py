"""Makes text from agents and tools safe for a terminal."""

from __future__ import annotations


def pluralize(number: int, one: str, many: str | None = None) -> str:
    """`1 call`, `2 calls`."""
    return f"{number} {one if number == 1 else many or f'{one}s'}"


def sanitize(text: str) -> str:
    """Return the text on one line, with control and bidirectional-override characters escaped."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
