"""Patches as pure code: text into what it does to each file. `hunks` applies that.

Accepts unified diffs, what `git diff` writes, and the apply-patch format, all of them as models write them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

from codesdk.domain.model import FrozenModel
from codesdk.domain.patch_headers import BOM, DIFF_GIT, is_name_pair, name_of, section
from codesdk.tools.git_paths import unquote_path
from codesdk.tools.hunk_parser import BINARY, STRAY, HunkParser
from codesdk.tools.hunks import Hunk, PatchRejected
from codesdk.tools.text_lines import split_lines

MAX_LINES = 100_000
"""Of a patch. Each line takes microseconds of the worker, and newlines alone could make four million of them."""
MAX_FILES = 500
"""What the runner writes as one batch."""
_EXTENDED = re.compile(
    r"(old mode|new mode|new file mode|deleted file mode|rename from|rename to|copy from|copy to|similarity index"
    r"|dissimilarity index|index) (.+)"
)
_MODES = {"100644": 0o644, "100755": 0o755}
_UNKNOWN_SECTION = re.compile(r"\*\*\*\s*(add|update|delete|move|rename|copy|create|modify|replace)\b", re.IGNORECASE)
_SEARCH_BLOCK = re.compile(r"^<{5,9} ?(SEARCH|ORIGINAL)", re.MULTILINE)


class FilePatch(FrozenModel):
    """All that a patch does to one file."""

    path: str
    """After the patch."""
    change: Literal["added", "modified", "deleted", "renamed"]
    source: str | None = None
    """Of a renamed file: the path before."""
    unprefixed: str | None = None
    """The path without `a/` or `b/`, where both names have the same of them: meant if only this file exists."""
    mode: int | None = None
    """Permission bits that the patch gives; None where it says nothing of them."""
    hunks: tuple[Hunk, ...] = ()
    discards: bool = False
    """What the file held is gone, whatever it was: a section that deletes it, or deletes and adds it."""

    @property
    def adds_if_absent(self) -> bool:
        """Whether it makes a file that is not there: it says that the file was empty, and not that there was none."""
        return (
            self.change == "modified"
            and all(hunk.start == 0 and not hunk.old for hunk in self.hunks)
            and bool(self.hunks)
        )

    @property
    def paths(self) -> tuple[str, ...]:
        """Every path that it may touch."""
        return tuple(path for path in (self.path, self.source, self.unprefixed) if path is not None)


def parse_readings(patch: str) -> tuple[tuple[FilePatch, ...], ...]:
    """How a patch can be read, in the order in which to try: by the counts of its hunks' headers, then by the marks.

    Most patches have one reading. A count that is wrong by a few lines can take the next file's header for lines of the
    hunk; then nothing fits, and the second reading applies.

    Raises:
        PatchRejected: neither reading finds a patch in it.
    """
    try:
        first = parse_diff(patch)
    except PatchRejected:
        return (parse_diff(patch, by_counts=False),)
    try:
        second = parse_diff(patch, by_counts=False)
    except PatchRejected:
        return (first,)
    return (first,) if first == second else (first, second)


def parse_diff(patch: str, *, by_counts: bool = True) -> tuple[FilePatch, ...]:
    """The files of a patch, in its order; what `git diff` writes about new, empty, renamed files and modes too.

    Raises:
        PatchRejected: no file in it, a malformed hunk, a file that is changed twice in ways that don't add up, a copy, a
            symbolic link, binary content, or more lines or files than are allowed.
    """
    if (lines := patch.count("\n")) > MAX_LINES:
        raise PatchRejected(f"The patch has {lines} lines; send it in parts of {MAX_LINES} lines at most.")
    patches = _join_repeated(_PatchParser(split_lines(_completed(patch)), by_counts=by_counts).files())
    if not patches:
        hint = " SEARCH/REPLACE blocks are calls of workspace.edit." if _SEARCH_BLOCK.search(patch) else ""
        raise PatchRejected(
            "This is no unified diff: it has no `--- a/file` and `+++ b/file` lines, and no `*** Update File: file`."
            + hint
        )
    paths = [path for patch in patches for path in (patch.path, patch.source) if path is not None]
    if len(paths) > MAX_FILES:
        raise PatchRejected(f"The patch changes {len(paths)} files; send it in parts of {MAX_FILES} files at most.")
    if len(set(paths)) != len(paths):
        raise PatchRejected("The patch names the same file twice; join what it does to it.")
    return patches


def _completed(patch: str) -> str:
    """The patch without a byte order mark, and with the last line end, which is often left out."""
    return patch.removeprefix(BOM) + "\n" * (not patch.endswith("\n"))


def _join_repeated(patches: Iterator[FilePatch]) -> tuple[FilePatch, ...]:
    """Join the hunks of a file that is named repeatedly: the later ones apply to what the earlier ones have made."""
    found: list[FilePatch] = []
    places: dict[str, int] = {}
    for patch in patches:
        at = places.setdefault(patch.path, len(found))
        if at < len(found) and patch.change == found[at].change == "modified" and patch.mode is None:
            # Their line numbers may count either text, so they are not used.
            later = [hunk.model_copy(update={"start": None}) for hunk in patch.hunks]
            later[0] = later[0].model_copy(update={"restarts": True})
            found[at] = found[at].model_copy(update={"hunks": (*found[at].hunks, *later)})
        elif at < len(found) and patch.change == "added" and found[at].change == "deleted" and found[at].discards:
            found[at] = patch.model_copy(update={"change": "modified", "discards": True})
        else:
            found.append(patch)
    return tuple(found)


class _PatchParser:
    """Reads the headers of files; what stands between files is skipped."""

    def __init__(self, lines: list[str], *, by_counts: bool) -> None:
        self._lines = lines
        self._hunks = HunkParser(lines, by_counts=by_counts)
        self._in_file = False
        """The lines belong to a file's part of the patch, not to a text around it."""

    def files(self) -> Iterator[FilePatch]:
        at = 0
        while at < len(self._lines):
            if (found := self._file(at)) is None:
                self._check_skipped(at)
                at += 1
                continue
            patch, at = found
            self._in_file = True
            yield patch

    def _file(self, at: int) -> tuple[FilePatch, int] | None:
        """The file whose part begins at a line, and the line after it; None if none does."""
        if self._lines[at].startswith(DIFF_GIT):
            return self._git_file(at)
        if self._has_names(at):
            return self._named_file(at)
        if found := section(self._lines[at]):
            return self._section(at, *found)
        return None

    def _check_skipped(self, at: int) -> None:
        """Refuse a line between files that would change something: what is left out in silence is taken for done."""
        line = self._lines[at]
        if line.startswith(STRAY):
            raise PatchRejected(f"Line {at + 1}: renames need their `diff --git` line; binary files and copies no way.")
        if _UNKNOWN_SECTION.match(line):
            known = "`*** Add File: `, `*** Update File: `, `*** Delete File: ` and `*** Move to: `"
            raise PatchRejected(f"Line {at + 1}: this header is unknown; the known ones are {known}, with a path.")
        by_marks = self._hunks.trusts_marks
        is_signature = self._hunks.is_signature(at) or (line.rstrip() == "--" and not by_marks)
        if is_signature or line.startswith(("*** End Patch", "From ")) or (line.startswith("```") and not by_marks):
            self._in_file = False
        elif self._in_file and (line[0] in "+-" or line.startswith("@@")):
            raise PatchRejected(f"Line {at + 1}: this line belongs to no hunk.")

    def _has_names(self, at: int) -> bool:
        return at + 1 < len(self._lines) and is_name_pair(self._lines[at], self._lines[at + 1])

    def _has_hunk(self, at: int) -> bool:
        return at < len(self._lines) and self._lines[at].startswith("@@")

    def _git_file(self, at: int) -> tuple[FilePatch, int]:
        lines, first = self._lines, at
        headers: dict[str, str] = {}
        at += 1
        while at < len(lines) and (header := _EXTENDED.fullmatch(lines[at].rstrip("\r\n"))):
            headers[header[1]] = header[2]
            at += 1
        if "copy from" in headers:
            raise PatchRejected(f"Line {first + 1}: copies are not supported; give the new file as an added one.")
        if at < len(lines) and lines[at].startswith(BINARY):
            raise PatchRejected(f"Line {at + 1}: binary files are not supported.")
        mode = _parse_mode(headers, first + 1)
        if "rename from" in headers:
            return self._git_rename(at, headers, mode)
        if self._has_names(at):
            patch, at = self._named_file(at)
            return patch.model_copy(update={"mode": mode}), at
        path = _git_path(lines[first], first + 1)
        change: Literal["added", "modified", "deleted"] = "modified"
        if "new file mode" in headers:
            change = "added"
        elif "deleted file mode" in headers:
            change, mode = "deleted", None
        elif mode is None and not self._has_hunk(at):
            raise PatchRejected(f"Line {at + 1}: {path} has no hunk (`@@ -1,3 +1,4 @@`).")
        hunks: tuple[Hunk, ...] = ()
        if self._has_hunk(at):
            hunks, at = self._hunks.parse(at, path, is_new=change == "added")
        return FilePatch(path=path, change=change, mode=mode, hunks=hunks), at

    def _git_rename(self, at: int, headers: dict[str, str], mode: int | None) -> tuple[FilePatch, int]:
        if "rename to" not in headers:
            raise PatchRejected(f"Line {at + 1}: `rename from` without `rename to`.")
        source, path = unquote_path(headers["rename from"]), unquote_path(headers["rename to"])
        hunks: tuple[Hunk, ...] = ()
        if self._has_names(at):
            names = [_name(line) for line in self._lines[at : at + 2]]
            if names not in ([f"a/{source}", f"b/{path}"], [source, path]):
                raise PatchRejected(f"Line {at + 1}: the names are not those of `rename from` and `rename to`.")
            hunks, at = self._hunks.parse(at + 2, path)
        elif self._has_hunk(at):
            hunks, at = self._hunks.parse(at, path)
        return FilePatch(path=path, change="renamed", source=source, mode=mode, hunks=hunks), at

    def _named_file(self, at: int) -> tuple[FilePatch, int]:
        """The file of a `---` and a `+++` line."""
        patch = _names_of(_name(self._lines[at]), _name(self._lines[at + 1]), at + 1)
        hunks, at = self._hunks.parse(at + 2, patch.path, is_new=patch.change == "added")
        return patch.model_copy(update={"hunks": hunks}), at

    def _section(self, at: int, header: str, path: str) -> tuple[FilePatch, int]:
        """A section of the apply-patch format."""
        lines, first = self._lines, at
        at += 1
        match header:
            case "Move to":
                raise PatchRejected(f"Line {first + 1}: `*** Move to:` stands below its `*** Update File:`.")
            case "Delete File":
                return FilePatch(path=path, change="deleted", discards=True), at
            case "Add File":
                hunks, at = self._hunks.parse_optional(at, is_new=True)
                return FilePatch(path=path, change="added", hunks=hunks), at
            case _:
                moved = section(lines[at]) if at < len(lines) else None
                target = moved[1] if moved and moved[0] == "Move to" else None
                at += target is not None
                if self._has_names(at):  # a unified diff's names, too
                    named = _names_of(_name(lines[at]), _name(lines[at + 1]), at + 1)
                    at += 2 * (named.path in (path, target))
                if target is None:
                    hunks, at = self._hunks.parse(at, path)
                    return FilePatch(path=path, change="modified", hunks=hunks), at
                hunks, at = self._hunks.parse_optional(at)
                return FilePatch(path=target, change="renamed", source=path, hunks=hunks), at


def _name(line: str) -> str:
    return unquote_path(name_of(line))


def _names_of(old: str, new: str, line: int) -> FilePatch:
    """What the two names of a unified diff say. `a/` and `b/` are prefixes as a pair, or where only one name has one."""
    if old == new == "/dev/null":
        raise PatchRejected(f"Line {line + 1}: both sides are /dev/null.")
    if old == "/dev/null":
        return FilePatch(path=new.removeprefix("b/"), change="added")
    if new == "/dev/null":
        return FilePatch(path=old.removeprefix("a/"), change="deleted")
    bare_old, bare_new = _unprefixed(old), _unprefixed(new)
    if old == new:
        return FilePatch(path=new, change="modified", unprefixed=bare_new if bare_new != new else None)
    if bare_old == bare_new and old[:2] != new[:2]:
        return FilePatch(path=bare_new, change="modified")
    are_pairs = (bare_old != old) == (bare_new != new)
    if not are_pairs:
        raise PatchRejected(f"{old} and {new} differ, and only one of them has the prefix a/ or b/.")
    if old.startswith("a/") and new.startswith("b/"):
        old, new = bare_old, bare_new
    return FilePatch(path=new, change="renamed", source=old)


def _unprefixed(name: str) -> str:
    return name[2:] if name.startswith(("a/", "b/")) else name


def _git_path(line: str, number: int) -> str:
    """The one path of `diff --git a/x b/x`, where nothing else in the diff names it."""
    rest = line.removeprefix(DIFF_GIT).rstrip("\r\n")
    half = len(rest) // 2
    old, new = unquote_path(rest[:half]), unquote_path(rest[half + 1 :])
    if rest[half : half + 1] != " " or old.removeprefix("a/") != new.removeprefix("b/"):
        raise PatchRejected(f"Line {number}: the two names differ, and no `rename from` says why.")
    return new.removeprefix("b/")


def _parse_mode(headers: dict[str, str], line: int) -> int | None:
    given = headers.get("new file mode") or headers.get("new mode")
    if given is None:
        return None
    if given not in _MODES:
        raise PatchRejected(f"Line {line}: mode {given} is no file's; symbolic links and submodules are not supported.")
    return _MODES[given]
