"""Text that agents and their tools wrote, made fit for a person's terminal."""

from __future__ import annotations


def pluralize(number: int, one: str, many: str | None = None) -> str:
    """`1 call`, `2 calls`."""
    return f"{number} {one if number == 1 else many or f'{one}s'}"


def sanitize(text: str) -> str:
    """The text on one line, with control characters and what reorders a line written out instead of obeyed."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
