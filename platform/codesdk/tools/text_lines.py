"""Lines of a text as diff, git and editors count them. Pure."""

from __future__ import annotations

_SMALL = 64
_BLOCK = 32 * 1024


def split_lines(text: str) -> list[str]:
    """The lines with their ends: only a newline ends one, where `splitlines` knows ten more ends."""
    *lines, rest = text.split("\n")
    whole = [line + "\n" for line in lines]
    return [*whole, rest] if rest else whole


def skip_lines(text: str, at: int, count: int) -> int | None:
    """The position `count` lines after `at`, which begins a line; None if there are fewer. No line is copied."""
    block = _BLOCK
    while count > _SMALL:
        end = min(at + block, len(text))
        if at == end:
            return None
        found = text.count("\n", at, end)
        if found < count:
            count -= found
            at = end
        elif block <= _SMALL:
            break
        else:
            block //= 8
    for number in range(count):
        end = text.find("\n", at) + 1
        if not end:
            return len(text) if at < len(text) and number == count - 1 else None
        at = end
    return at


def line_number(text: str, at: int) -> int:
    """The 1-based line that a position is in."""
    return text.count("\n", 0, at) + 1
