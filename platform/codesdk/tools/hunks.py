"""Applies hunks to a text: exact context, at the stated line or at the one place where it fits. Pure."""

from __future__ import annotations

import re

from codesdk.domain.model import FrozenModel

MAX_COMPARISONS = 10_000_000
"""Lines compared to find a hunk that is not at its stated line: under a second. A hostile diff can ask for 10**12."""


class PatchRejected(Exception):
    """The diff is malformed or does not fit; the message names file, hunk and what was expected."""


class Hunk(FrozenModel):
    """One place. Lines keep their marker and their line end."""

    start: int
    """First line of the old text, 1-based; 0 for a new file."""
    old: tuple[str, ...]
    new: tuple[str, ...]


def split_lines(text: str) -> list[str]:
    """The lines as diff, git and editors count them: only a newline ends one, where `splitlines` knows ten more ends."""
    return [line for line in re.split(r"(?<=\n)", text) if line]


def apply_hunks(hunks: tuple[Hunk, ...], text: str, path: str, *, deletes: bool = False) -> str:
    """The text after the hunks; `path` is for messages.

    Deletes: the file goes, so the hunks must cover all of it.

    Raises:
        PatchRejected: a hunk does not fit, or fits in several places away from its stated line.
    """
    lines = split_lines(text)
    done: list[str] = []
    position = 0
    for number, hunk in enumerate(hunks, start=1):
        place = _locate(lines, hunk, position, f"{path}, hunk {number}")
        done += lines[position:place]
        done += hunk.new
        position = place + len(hunk.old)
    if deletes and (position < len(lines) or "".join(done)):
        raise PatchRejected(f"{path}: the diff deletes the file but does not cover all of it.")
    return "".join(done + lines[position:])


def _locate(lines: list[str], hunk: Hunk, earliest: int, where: str) -> int:
    if not hunk.old:
        # Pure insertion: the header's line is the one after which it goes.
        place = hunk.start
        if not earliest <= place <= len(lines):
            raise PatchRejected(f"{where}: line {hunk.start} is outside the file ({len(lines)} lines).")
        return place
    stated = hunk.start - 1
    if stated >= earliest and _fits(lines, hunk, stated):
        return stated
    possible = [at for at in range(earliest, len(lines) - len(hunk.old) + 1) if lines[at] == hunk.old[0]]
    if len(possible) * len(hunk.old) > MAX_COMPARISONS:
        raise PatchRejected(f"{where}: it is not at line {hunk.start}, and its context is too common to look for.")
    places = [at for at in possible if _fits(lines, hunk, at)]
    if len(places) == 1:
        return places[0]
    if places:
        raise PatchRejected(
            f"{where}: its context fits at lines {[p + 1 for p in places[:5]]}; add context or correct the line number."
        )
    raise PatchRejected(f"{where}: {_first_mismatch(lines, hunk, max(stated, 0))}.")


def _first_mismatch(lines: list[str], hunk: Hunk, at: int) -> str:
    """The first line that is not as the hunk says, where the hunk says that it is."""
    for number, wanted in enumerate(hunk.old, start=at):
        found = lines[number] if number < len(lines) else ""
        if found != wanted:
            same = found.rstrip() == wanted.rstrip()  # only the ends differ: CRLF, blanks, no newline at the file's end
            want, have = (wanted, found) if same else (wanted.rstrip(), found.rstrip())
            return f"expected {want!r} at line {number + 1}, found {repr(have) if found else '(end of file)'}"
    return f"its context is above line {at + 1}, where an earlier hunk ends"


def _fits(lines: list[str], hunk: Hunk, at: int) -> bool:
    return tuple(lines[at : at + len(hunk.old)]) == hunk.old
