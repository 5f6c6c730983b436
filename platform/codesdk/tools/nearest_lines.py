"""Finds the lines of a text that are nearest to wanted ones, for the message of a refusal. Pure, and bounded."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from codesdk.domain.model import FrozenModel
from codesdk.tools.text_lines import split_lines

MAX_WORK = 8 * 1024 * 1024
"""Characters of the text, with `_LINE_COST` more for each line: a third of a second. Of a larger text nothing is said."""
MAX_SHOWN = 200
"""Characters of a line that a message repeats."""
_LINE_COST = 32
_MAX_WANTED = 200
"""Wanted lines that are looked for."""
_MAX_REPEATS = 4
"""Of equal wanted lines, how many count."""
_MAX_WEIGHT = 40
"""A long line says more about the place than a bracket, up to this many characters."""
_MIN_LIKENESS = 0.5
"""Share of the words that two lines have in common, from which one is shown for the other."""
_MAX_COMPARED = 400
"""Characters of a line that are compared by words."""
_WORD = re.compile(r"\w+")


class NearestLines(FrozenModel):
    """Where a text is most like the wanted lines, and the first difference there."""

    line: int
    """1-based; the first of them."""
    lines: tuple[str, ...]
    """As many as were wanted, or up to the end of the text."""
    differs: int
    """1-based; the first line that is not as wanted."""
    wanted: str
    found: str
    """The same line of the text; empty after its end."""

    @property
    def difference(self) -> str:
        """The first difference, in words."""
        if not self.found:
            return f"expected {shown(self.wanted)} at line {self.differs}, found (end of file)"
        if self.wanted.rstrip("\r\n") == self.found.rstrip("\r\n"):
            kind = ": only the line ends differ"
        elif _squeezed(self.wanted) == _squeezed(self.found):
            kind = ": only the white space differs"
        else:
            kind = ""
        both = (self.wanted, self.found) if kind else (self.wanted.rstrip(), self.found.rstrip())
        return f"expected {shown(both[0])} at line {self.differs}, found {shown(both[1])}{kind}"


def nearest_lines(wanted: Sequence[str], text: str, near: int | None = None) -> NearestLines | None:
    """Return the place that has most of the wanted lines, or a line much like the longest of them; None if there is none.

    Lines are compared without regard to white space. Of equally good places, the one closest to line `near` counts.
    """
    if len(text) + _LINE_COST * text.count("\n") > MAX_WORK or not any(map(str.strip, wanted)):
        return None
    lines = split_lines(text)
    first = _most_equal(wanted, lines, near or 1)
    if first is None:
        first = _most_alike(wanted, lines)
    return None if first is None else _compared(wanted, lines, first)


def shown(line: str) -> str:
    """A line for a message, cut if it is long."""
    cut = len(line) - MAX_SHOWN
    return repr(line) if cut <= 0 else f"{line[:MAX_SHOWN]!r}… ({cut} characters more)"


def _squeezed(line: str) -> str:
    return "".join(line.split())


def _most_equal(wanted: Sequence[str], lines: Sequence[str], near: int) -> int | None:
    """The index where most wanted lines are at their place."""
    places: dict[str, list[int]] = {}
    for index, line in enumerate(wanted[:_MAX_WANTED]):
        if key := _squeezed(line):
            places.setdefault(key, []).append(index)
    found: Counter[int] = Counter()
    for number, line in enumerate(lines):
        for index in places.get(key := _squeezed(line), ())[:_MAX_REPEATS]:
            found[number - index] += min(len(key), _MAX_WEIGHT)
    if not found:
        return None
    return max(found, key=lambda first: (found[first], -abs(first + 1 - near)))


def _most_alike(wanted: Sequence[str], lines: Sequence[str]) -> int | None:
    """The index where a line shares the most words with the longest wanted one."""
    index = max(range(min(len(wanted), _MAX_WANTED)), key=lambda each: len(wanted[each].strip()))
    words = set(_WORD.findall(wanted[index][:_MAX_COMPARED]))
    best, first = _MIN_LIKENESS, None
    for number, line in enumerate(lines):
        others = set(_WORD.findall(line[:_MAX_COMPARED]))
        if others and (likeness := 2 * len(words & others) / (len(words) + len(others))) > best:
            best, first = likeness, number - index
    return first


def _compared(wanted: Sequence[str], lines: Sequence[str], first: int) -> NearestLines | None:
    begin, last = max(first, 0), first + len(wanted)
    at = next((at for at in range(begin, last) if at >= len(lines) or lines[at] != wanted[at - first]), None)
    if at is None and first >= 0:
        return None
    line = wanted[0] if at is None else wanted[at - first]  # None: the first wanted lines would be above the text
    at = at or 0
    return NearestLines(
        line=begin + 1,
        lines=tuple(lines[begin:last]),
        differs=at + 1,
        wanted=line,
        found=lines[at] if at < len(lines) else "",
    )
