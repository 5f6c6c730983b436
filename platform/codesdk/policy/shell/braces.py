"""Expands the braces of a word, as bash does before it reads anything else: `src/{a,b}.py`, `{1..3}`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

MAX_WORDS = 64
_MAX_LENGTH = 400
_WRITTEN = re.compile(r"[A-Za-z0-9_./:=,@%+^{}*?-]+")
"""What a word with braces may hold. With quotes, backslashes or `$`, the braces stay unexpanded and the word unknown."""
_NUMBERS = re.compile(r"(-?[0-9]{1,6})\.\.(-?[0-9]{1,6})")
_LETTERS = re.compile(r"([A-Za-z])\.\.([A-Za-z])")


def expand(raw: str) -> Sequence[str]:
    """Return the words that bash makes of `raw`; `raw` alone if its braces can't be expanded with certainty."""
    if len(raw) > _MAX_LENGTH or not _WRITTEN.fullmatch(raw) or not _is_balanced(raw):
        return (raw,)
    words = _expand(raw)
    return (raw,) if words is None or not all(words) else words


def _is_balanced(raw: str) -> bool:
    depth = 0
    for char in raw:
        depth += (char == "{") - (char == "}")
        if depth < 0:
            return False
    return depth == 0


def _expand(raw: str) -> list[str] | None:
    """Expand the first group and everything behind it; None if a group is of another form, or there are too many words."""
    start = raw.find("{")
    if start < 0:
        return [raw]
    end, commas = _group(raw, start)
    inner = raw[start + 1 : end]
    if commas:
        edges = [start, *commas, end]
        parts = [raw[one + 1 : other] for one, other in pairwise(edges)]
        middles = _join(parts)
    elif not inner:  # `{}` is literal
        middles = ["{}"]
    else:
        middles = _sequence(inner)
    rest = _expand(raw[end + 1 :])
    if middles is None or rest is None or len(middles) * len(rest) > MAX_WORDS:
        return None
    return [raw[:start] + middle + behind for middle in middles for behind in rest]


def _group(raw: str, start: int) -> tuple[int, list[int]]:
    """Return where a balanced group ends, and its commas."""
    depth = 0
    commas: list[int] = []
    for at in range(start, len(raw)):
        depth += (raw[at] == "{") - (raw[at] == "}")
        if depth == 0:
            return at, commas
        if depth == 1 and raw[at] == ",":
            commas.append(at)
    return len(raw), commas


def _join(parts: Sequence[str]) -> list[str] | None:
    found: list[str] = []
    for part in parts:
        words = _expand(part)
        if words is None:
            return None
        found += words
    return found


def _sequence(inner: str) -> list[str] | None:
    """Return the members of `1..3` or `a..e`. None for a step or leading zeros, so that a person decides."""
    numbers, letters = _NUMBERS.fullmatch(inner), _LETTERS.fullmatch(inner)
    if numbers and all(str(int(end)) == end for end in numbers.groups()):
        first, last = int(numbers[1]), int(numbers[2])
    elif letters and letters[1].isupper() == letters[2].isupper():
        first, last = ord(letters[1]), ord(letters[2])
    else:
        return None
    if abs(last - first) >= MAX_WORDS:
        return None
    step = 1 if last >= first else -1
    return [str(number) if numbers else chr(number) for number in range(first, last + step, step)]
