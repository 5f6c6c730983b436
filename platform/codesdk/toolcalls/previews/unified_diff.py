"""A unified diff of one file, in bounded time whatever the two texts are. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import NamedTuple

from codesdk.tools.git_paths import quote_path
from codesdk.tools.hunks import split_lines

CONTEXT = 3
"""Unchanged lines around a change."""
MAX_COMPARED = 250_000
"""Lines of the old middle times lines of the new: beyond, the one is shown as taken out and the other as put in, since
looking for what they share takes time that grows with the square (measured: under a second at this size)."""
_NO_NEWLINE = "\\ No newline at end of file"


class Change(NamedTuple):
    """Lines `before[first:last]` become `after[start:end]`."""

    first: int
    last: int
    start: int
    end: int


def unified_diff(path: str, before: str | None, after: str | None) -> str:
    """The diff, as `diff -u` writes it; None for a file that is not there. Empty where nothing differs."""
    old, new = split_lines(before or ""), split_lines(after or "")
    heads = [
        f"--- {quote_path(f'a/{path}') if before is not None else '/dev/null'}",
        f"+++ {quote_path(f'b/{path}') if after is not None else '/dev/null'}",
    ]
    hunks = list(_hunks(old, new))
    return "\n".join([*heads, *hunks]) + "\n" if hunks else ""


def _hunks(old: list[str], new: list[str]) -> Iterator[str]:
    for group in _groups(_changes(old, new)):
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


def _changes(old: list[str], new: list[str]) -> list[Change]:
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
    if len(middle_old) * len(middle_new) > MAX_COMPARED:
        return [Change(head, len(old) - tail, head, len(new) - tail)]
    found = SequenceMatcher(None, middle_old, middle_new).get_opcodes()
    return [
        Change(head + first, head + last, head + start, head + end)
        for tag, first, last, start, end in found
        if tag != "equal"
    ]


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
