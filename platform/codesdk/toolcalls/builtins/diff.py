"""Unified diffs as pure code: parse, then apply with exact context at the stated line or at the one place it fits."""

from __future__ import annotations

import re
from typing import Literal

from codesdk.domain.decisions import Frozen

_NUMBER = "([0-9]{1,9})"
_HEADER = re.compile(rf"@@ -{_NUMBER}(?:,{_NUMBER})? \+{_NUMBER}(?:,{_NUMBER})? @@")
_NO_NEWLINE = "\\"


MAX_COMPARISONS = 10_000_000
"""Lines compared to find a hunk that is not at its stated line: under a second. A hostile diff can ask for 10**12."""


class PatchRejected(Exception):
    """The diff is malformed or does not fit; the message names file, hunk and what was expected."""


class Hunk(Frozen):
    """One place. Lines keep their marker and their line end."""

    start: int
    """First line of the old text, 1-based; 0 for a new file."""
    old: tuple[str, ...]
    new: tuple[str, ...]


class FilePatch(Frozen):
    """All that a diff does to one file."""

    path: str
    change: Literal["added", "modified", "deleted"]
    hunks: tuple[Hunk, ...]


def lines_of(text: str) -> list[str]:
    """The lines as diff, git and editors count them: only a newline ends one, where `splitlines` knows ten more ends."""
    return [line for line in re.split(r"(?<=\n)", text) if line]


def parse(diff: str) -> list[FilePatch]:
    """The files of a unified diff, in its order.

    Raises:
        PatchRejected: no file in it, a malformed hunk, the same file twice, a rename.
    """
    lines = lines_of(diff)
    patches: list[FilePatch] = []
    at = 0
    while at < len(lines):
        if lines[at].startswith(("rename from", "copy from", "GIT binary patch")):
            raise PatchRejected(f"Line {at + 1}: renames, copies and binary patches are not supported.")
        if lines[at].startswith("--- ") and at + 1 < len(lines) and lines[at + 1].startswith("+++ "):
            patch, at = _file(lines, at)
            patches.append(patch)
        else:
            at += 1
    if not patches:
        raise PatchRejected("This is no unified diff: it has no `--- a/file` and `+++ b/file` lines.")
    paths = [patch.path for patch in patches]
    if len(set(paths)) != len(paths):
        raise PatchRejected("The diff names the same file twice; join its hunks.")
    return patches


def apply_hunks(patch: FilePatch, text: str) -> str:
    """The text after the patch.

    Raises:
        PatchRejected: a hunk does not fit, or fits in several places away from its stated line.
    """
    lines = lines_of(text)
    done: list[str] = []
    position = 0
    for number, hunk in enumerate(patch.hunks, start=1):
        place = _place(lines, hunk, position, f"{patch.path}, hunk {number}")
        done += lines[position:place]
        done += hunk.new
        position = place + len(hunk.old)
    if patch.change == "deleted" and (position < len(lines) or "".join(done)):
        raise PatchRejected(f"{patch.path}: the diff deletes the file but does not cover all of it.")
    return "".join(done + lines[position:])


def _file(lines: list[str], at: int) -> tuple[FilePatch, int]:
    old, new = _name(lines[at], "a/"), _name(lines[at + 1], "b/")
    at += 2
    hunks: list[Hunk] = []
    while at < len(lines) and (header := _HEADER.match(lines[at])):
        hunk, at = _hunk(lines, at, header)
        hunks.append(hunk)
    if not hunks:
        raise PatchRejected(f"Line {at + 1}: {new or old} has no hunk (`@@ -1,3 +1,4 @@`).")
    if old is None and new is None:
        raise PatchRejected(f"Line {at}: both sides are /dev/null.")
    if old is None:
        return FilePatch(path=new or "", change="added", hunks=tuple(hunks)), at
    if new is None:
        return FilePatch(path=old, change="deleted", hunks=tuple(hunks)), at
    if old != new:
        raise PatchRejected(f"{old} and {new} differ: renames are not supported.")
    return FilePatch(path=new, change="modified", hunks=tuple(hunks)), at


def _name(line: str, prefix: str) -> str | None:
    name = line[4:].rstrip("\r\n").split("\t")[0].strip()
    return None if name == "/dev/null" else name.removeprefix(prefix)


def _hunk(lines: list[str], at: int, header: re.Match[str]) -> tuple[Hunk, int]:
    start = int(header[1])
    want_old = int(header[2]) if header[2] is not None else 1
    want_new = int(header[4]) if header[4] is not None else 1
    old: list[str] = []
    new: list[str] = []
    first = at + 1
    at = first
    while at < len(lines) and (len(old) < want_old or len(new) < want_new):
        line = lines[at]
        # Models often send an empty context line without its space.
        mark, rest = (" ", line) if line in ("\n", "\r\n") else (line[0], line[1:])
        if mark not in " +-" + _NO_NEWLINE:
            break
        if mark == _NO_NEWLINE:
            _strip_newline(lines[at - 1][0], old, new)
        if mark in " -":
            old.append(rest)
        if mark in " +":
            new.append(rest)
        at += 1
    if at < len(lines) and lines[at].startswith(_NO_NEWLINE):
        _strip_newline(lines[at - 1][0], old, new)
        at += 1
    if (len(old), len(new)) != (want_old, want_new):
        counts = f"-{len(old)} +{len(new)} lines where its header says -{want_old} +{want_new}"
        raise PatchRejected(f"Line {first}: the hunk has {counts}.")
    if at < len(lines) and _goes_on(lines, at):
        raise PatchRejected(f"Line {at + 1}: the hunk goes on after the -{want_old} +{want_new} lines of its header.")
    return Hunk(start=start, old=tuple(old), new=tuple(new)), at


def _goes_on(lines: list[str], at: int) -> bool:
    """Whether a line that belongs to the hunk follows its counted end: leaving it out would change less than was sent."""
    following = lines[at + 1] if at + 1 < len(lines) else ""
    next_file = lines[at].startswith("--- ") and following.startswith("+++ ")
    signature = lines[at].rstrip() == "--"  # the end of a mailed patch
    return lines[at][0] in " +-" and not next_file and not signature


def _strip_newline(mark: str, old: list[str], new: list[str]) -> None:
    if mark in " -" and old:
        old[-1] = old[-1].removesuffix("\n")
    if mark in " +" and new:
        new[-1] = new[-1].removesuffix("\n")


def _place(lines: list[str], hunk: Hunk, earliest: int, where: str) -> int:
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
            f"{where}: its context fits at lines {[p + 1 for p in places[:5]]}; add context or mend the line."
        )
    raise PatchRejected(f"{where}: {_difference(lines, hunk, max(stated, 0))}.")


def _difference(lines: list[str], hunk: Hunk, at: int) -> str:
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
