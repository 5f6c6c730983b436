"""The hunks of a patch: their headers and lines, counted as the header says or read by their marks. Pure."""

from __future__ import annotations

import re

from codesdk.domain.patch_headers import DIFF_GIT, is_name_pair, name_of
from codesdk.tools.hunks import Hunk, PatchRejected

_NUMBER = "([0-9]{1,9})"
_HEADER = re.compile(rf"@@ *-{_NUMBER}(?:,{_NUMBER})? +\+{_NUMBER}(?:,{_NUMBER})?(?: *@@|\s*\Z)")
_PLACEHOLDER = re.compile(r"[-+,.0-9x…\s]*", re.IGNORECASE)
"""What stands for numbers that the author did not know: `@@ ... @@`, `@@ -X,Y +X,Y @@` is one with a letter more."""
_UNKNOWN_NUMBERS = re.compile(r"-[\w,]* +\+[\w,]*")
_NO_NEWLINE = "\\"
END_OF_FILE = "*** End of File"
BINARY = ("GIT binary patch", "Binary files ")
STRAY = ("rename from ", "copy from ", *BINARY)
"""Lines that change a file, and stand outside of hunks."""
_ENDS = ("@@", DIFF_GIT, "```", "***", *STRAY)
_VERSION = re.compile(r"[0-9]+\.[0-9]")


class HunkParser:
    """Reads the hunks of one file after another.

    By counts: a hunk with numbers has as many lines as its header says, and is refused otherwise. By marks: it goes on
    as far as its lines are marked as a hunk's, whatever the header counts.
    """

    def __init__(self, lines: list[str], *, by_counts: bool) -> None:
        self._lines = lines
        self._by_counts = by_counts
        self.trusts_marks = False
        """A hunk of the last file ended where its marks end."""

    def parse(self, at: int, path: str, *, is_new: bool = False) -> tuple[tuple[Hunk, ...], int]:
        """The hunks of a file from line `at` on, and the line after them.

        Raises:
            PatchRejected: there is none, or one is malformed.
        """
        hunks, at = self.parse_optional(at, is_new=is_new)
        if not hunks:
            raise PatchRejected(f"Line {at + 1}: {path} has no hunk (`@@ -1,3 +1,4 @@`).")
        return hunks, at

    def parse_optional(self, at: int, *, is_new: bool = False) -> tuple[tuple[Hunk, ...], int]:
        """Likewise, where there need be none."""
        hunks: list[Hunk] = []
        self.trusts_marks = False
        while at < len(self._lines) and self._begins_hunk(at, is_first=not hunks):
            hunk, at = self._hunk(at, is_new=is_new)
            hunks.append(hunk)
        return tuple(hunks), at

    def _begins_hunk(self, at: int, *, is_first: bool) -> bool:
        line = self._lines[at]
        return line.startswith("@@") or (is_first and line[0] in "+- " and not self._ends_hunk(at))

    def _hunk(self, at: int, *, is_new: bool) -> tuple[Hunk, int]:
        first = at
        anchors: list[str] = []
        header = None
        while at < len(self._lines) and self._lines[at].startswith("@@"):
            header = _HEADER.match(self._lines[at])
            anchor = "" if header else _anchor(self._lines[at])
            anchors += [anchor] if anchor else []
            at += 1
            if header:
                break
        if header and self._by_counts:
            return self._counted(at, header)
        self.trusts_marks = True
        end = self._end(at)
        old, new = self._marked(at, self._last(at, end), is_new=is_new)
        if not old and not new:
            raise PatchRejected(f"Line {first + 1}: the hunk has no lines.")
        at_end = end < len(self._lines) and self._lines[end].startswith(END_OF_FILE)
        # A hunk that only adds lines and counts others has lost them: where it goes is unknown.
        knows_place = header is not None and (bool(old) or (header[2] or "1") == "0")
        start = int(header[1]) if header and knows_place else None
        hunk = Hunk(start=start, old=tuple(old), new=tuple(new), anchors=tuple(anchors), at_end=at_end)
        return hunk, end + at_end

    def _counted(self, at: int, header: re.Match[str]) -> tuple[Hunk, int]:
        lines = self._lines
        want_old = int(header[2]) if header[2] is not None else 1
        want_new = int(header[4]) if header[4] is not None else 1
        old: list[str] = []
        new: list[str] = []
        first = at
        while at < len(lines) and (len(old) < want_old or len(new) < want_new):
            mark, rest = _split(lines[at])
            if mark not in " +-" + _NO_NEWLINE:
                break
            _add(mark, rest, lines[at - 1][0], old, new)
            at += 1
        if at < len(lines) and lines[at].startswith(_NO_NEWLINE):
            _strip_newline(lines[at - 1][0], old, new)
            at += 1
        if (len(old), len(new)) != (want_old, want_new):
            counts = f"-{len(old)} +{len(new)} lines where its header says -{want_old} +{want_new}"
            raise PatchRejected(f"Line {first}: the hunk has {counts}.")
        if at < len(lines) and self._has_uncounted_line(at):
            counts = f"-{want_old} +{want_new}"
            raise PatchRejected(f"Line {at + 1}: the hunk goes on after the {counts} lines of its header.")
        return Hunk(start=int(header[1]), old=tuple(old), new=tuple(new)), at

    def _has_uncounted_line(self, at: int) -> bool:
        """Whether a line that belongs to the hunk follows its counted end: leaving it out would change less than was sent."""
        lines = self._lines
        next_file = at + 1 < len(lines) and is_name_pair(lines[at], lines[at + 1])
        signature = lines[at].rstrip() == "--"  # the end of a mailed patch
        return lines[at][0] in " +-" and not next_file and not signature

    def _end(self, at: int) -> int:
        """The next line that can be in no hunk."""
        while at < len(self._lines) and not self._ends_hunk(at):
            at += 1
        return at

    def _ends_hunk(self, at: int) -> bool:
        line = self._lines[at]
        if line[0] in "+ \n":
            return False
        if line[0] != "-":
            return line.startswith(_ENDS)
        return self.is_signature(at) or self._is_next_file(at)

    def is_signature(self, at: int) -> bool:
        """Whether the version of git begins here, the end of a mailed patch."""
        lines = self._lines
        return lines[at].rstrip() == "--" and at + 1 < len(lines) and _VERSION.match(lines[at + 1]) is not None

    def _is_next_file(self, at: int) -> bool:
        """Whether `---` and `+++` begin a file here, and do not take away `-- x` and add `++ y`."""
        lines = self._lines
        if at + 1 >= len(lines) or not is_name_pair(lines[at], lines[at + 1]):
            return False
        names = [name_of(line) for line in lines[at : at + 2]]
        same = names[0].removeprefix("a/") == names[1].removeprefix("b/")
        return same or "/dev/null" in names or (at + 2 < len(lines) and lines[at + 2].startswith("@@"))

    def _last(self, at: int, end: int) -> int:
        """Where a hunk ends within these lines: what is unmarked after its last change is a comment or a separator."""
        while end > at and self._lines[end - 1][0] not in "+- " + _NO_NEWLINE:
            end -= 1
        return end

    def _marked(self, at: int, end: int, *, is_new: bool) -> tuple[list[str], list[str]]:
        old: list[str] = []
        new: list[str] = []
        for number in range(at, end):
            line = self._lines[number]
            mark, rest = _split(line)
            if mark not in " +-" + _NO_NEWLINE:
                mark, rest = " ", line  # context without its space: it must be in the file all the same
            if line.startswith("+++ ") and number + 1 == end < len(self._lines) and self._lines[end].startswith("@@"):
                raise PatchRejected(f"Line {number + 1}: this `+++` line has no `---` line above it.")
            if is_new and line.strip() == "":
                mark, rest = "+", line.lstrip(" ")  # nothing can be context in a new file
            _add(mark, rest, self._lines[number - 1][0], old, new)
        return old, new


def _split(line: str) -> tuple[str, str]:
    """The mark and the rest. An empty context line is often sent without its space."""
    return (" ", line) if line in ("\n", "\r\n") else (line[0], line[1:])


def _add(mark: str, rest: str, before: str, old: list[str], new: list[str]) -> None:
    """Add one line of a hunk; `before` is the mark of the line above."""
    if mark == _NO_NEWLINE:
        _strip_newline(before, old, new)
    if mark in " -":
        old.append(rest)
    if mark in " +":
        new.append(rest)


def _strip_newline(mark: str, old: list[str], new: list[str]) -> None:
    if mark in " -" and old:
        old[-1] = old[-1].removesuffix("\n")
    if mark in " +" and new:
        new[-1] = new[-1].removesuffix("\n")


def _anchor(line: str) -> str:
    """The line of the file that a header without numbers names; empty if it names none."""
    text = line.strip().strip("@").strip()
    return "" if _PLACEHOLDER.fullmatch(text) or _UNKNOWN_NUMBERS.fullmatch(text) else text
