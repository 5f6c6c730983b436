"""A unified diff of one file, in bounded time whatever the two texts are. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from codesdk.domain.work_budget import WorkBudget
from codesdk.tools.git_paths import quote_path
from codesdk.tools.text_lines import split_lines

CONTEXT = 3
"""Unchanged lines around a change."""
MAX_WORK = 300_000
"""Comparisons of lines for all diffs of one preview: under half a second and 30 MB. Beyond, the old lines are shown as taken out and
the new ones as put in: looking for what they share takes time that grows with the square of the differences."""
_NO_NEWLINE = "\\ No newline at end of file"


class Change(NamedTuple):
    """Lines `before[first:last]` become `after[start:end]`."""

    first: int
    last: int
    start: int
    end: int


def unified_diff(path: str, before: str | None, after: str | None, budget: WorkBudget) -> str:
    """The diff, as `diff -u` writes it; None for a file that is not there. Empty where nothing differs."""
    old, new = split_lines(before or ""), split_lines(after or "")
    heads = [
        f"--- {quote_path(f'a/{path}') if before is not None else '/dev/null'}",
        f"+++ {quote_path(f'b/{path}') if after is not None else '/dev/null'}",
    ]
    hunks = list(_hunks(old, new, budget))
    return "\n".join([*heads, *hunks]) + "\n" if hunks else ""


def _hunks(old: list[str], new: list[str], budget: WorkBudget) -> Iterator[str]:
    for group in _groups(_changes(old, new, budget)):
        first = max(0, group[0].first - CONTEXT)
        last = min(len(old), group[-1].last + CONTEXT)
        start = group[0].start - (group[0].first - first)
        end = group[-1].end + (last - group[-1].last)
        yield f"@@ -{_span(first, last)} +{_span(start, end)} @@"
        place = first
        for change in group:
            yield from _marked(" ", old[place : change.first])
            yield from _marked("-", old[change.first : change.last])
            yield from _marked("+", new[change.start : change.end])
            place = change.last
        yield from _marked(" ", old[place:last])


def _changes(old: list[str], new: list[str], budget: WorkBudget) -> list[Change]:
    """What differs, in order. Equal beginnings and ends are taken off first: most edits are small ones of large files."""
    head = 0
    while head < min(len(old), len(new)) and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    middle_old, middle_new = old[head : len(old) - tail], new[head : len(new) - tail]
    if not middle_old and not middle_new:
        return []
    kept = _common_lines(middle_old, middle_new, budget) if middle_old and middle_new else []
    found: list[Change] = []
    first = start = 0
    for last, end in [*kept, (len(middle_old), len(middle_new))]:
        if last > first or end > start:
            found.append(Change(head + first, head + last, head + start, head + end))
        first, start = last + 1, end + 1
    return found


def _common_lines(old: list[str], new: list[str], budget: WorkBudget) -> list[tuple[int, int]]:
    """Indexes of lines that both have, as many as possible, in order; none if the budget is spent.

    Myers, "An O(ND) Difference Algorithm and Its Variations" (1986): `furthest` has, for each difference of the two
    indexes, how far `old` has been read after that many deletions and insertions.
    """
    furthest = {1: 0}
    rounds: list[dict[int, int]] = []
    for edits in range(len(old) + len(new) + 1):
        rounds.append(furthest)
        reached: dict[int, int] = {}
        for diagonal in range(-edits, edits + 1, 2):
            at = begin = _begin(furthest, diagonal, edits)[1]
            while at < len(old) and at - diagonal < len(new) and old[at] == new[at - diagonal]:
                at += 1
            reached[diagonal] = at
            if not budget.spend(1 + at - begin):
                return []
            if at >= len(old) and at - diagonal >= len(new):
                return _trace(rounds, diagonal, at)
        furthest = reached
    raise AssertionError("deleting all lines and inserting all others ends the search")


def _begin(furthest: dict[int, int], diagonal: int, edits: int) -> tuple[int, int]:
    """From which diagonal this one is reached, and how far `old` has been read then."""
    if diagonal == -edits or (diagonal != edits and furthest[diagonal - 1] < furthest[diagonal + 1]):
        return diagonal + 1, furthest[diagonal + 1]
    return diagonal - 1, furthest[diagonal - 1] + 1


def _trace(rounds: list[dict[int, int]], diagonal: int, at: int) -> list[tuple[int, int]]:
    """The common lines on the way that led to the end."""
    kept: list[tuple[int, int]] = []
    for edits in reversed(range(len(rounds))):
        above, begin = _begin(rounds[edits], diagonal, edits)
        kept += [(index, index - diagonal) for index in reversed(range(begin, at))]
        diagonal, at = above, rounds[edits][above]
    return kept[::-1]


def _groups(changes: list[Change]) -> Iterator[list[Change]]:
    group: list[Change] = []
    for change in changes:
        if group and change.first - group[-1].last > 2 * CONTEXT:
            yield group
            group = []
        group.append(change)
    if group:
        yield group


def _span(first: int, last: int) -> str:
    count = last - first
    return f"{first + 1 if count else first},{count}"


def _marked(mark: str, lines: list[str]) -> Iterator[str]:
    for line in lines:
        yield mark + line.removesuffix("\n")
        if not line.endswith("\n"):
            yield _NO_NEWLINE
