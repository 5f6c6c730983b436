"""Unified diffs as pure code: text into what it does to each file. `hunks` applies that."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

from codesdk.domain.model import FrozenModel
from codesdk.tools.git_paths import unquote_path
from codesdk.tools.hunks import Hunk, PatchRejected, split_lines

__all__ = ["FilePatch", "PatchRejected", "parse_diff", "split_lines"]

MAX_LINES = 100_000
"""Of a diff. Each line takes microseconds of the worker, and newlines alone could make four million of them."""
MAX_FILES = 500
"""What the runner writes as one batch."""
_NUMBER = "([0-9]{1,9})"
_HEADER = re.compile(rf"@@ -{_NUMBER}(?:,{_NUMBER})? \+{_NUMBER}(?:,{_NUMBER})? @@")
_NO_NEWLINE = "\\"
_GIT = "diff --git "
_EXTENDED = re.compile(
    r"(old mode|new mode|new file mode|deleted file mode|rename from|rename to|copy from|copy to|similarity index"
    r"|dissimilarity index|index) (.+)"
)
_BINARY = ("GIT binary patch", "Binary files ")
_MODES = {"100644": 0o644, "100755": 0o755}


class FilePatch(FrozenModel):
    """All that a diff does to one file."""

    path: str
    """After the patch."""
    change: Literal["added", "modified", "deleted", "renamed"]
    source: str | None = None
    """Of a renamed file: the path before."""
    mode: int | None = None
    """Permission bits that the diff gives; None where it says nothing of them."""
    hunks: tuple[Hunk, ...] = ()


def parse_diff(diff: str) -> list[FilePatch]:
    """The files of a unified diff, in its order; what `git diff` writes about new, empty, renamed files and modes too.

    Raises:
        PatchRejected: no file in it, a malformed hunk, the same file twice, a copy, a symbolic link, binary content, or
            more lines or files than are allowed.
    """
    if (lines := diff.count("\n")) > MAX_LINES:
        raise PatchRejected(f"The diff has {lines} lines; send it in parts of {MAX_LINES} lines at most.")
    patches = list(_parse_files(split_lines(diff)))
    if not patches:
        raise PatchRejected("This is no unified diff: it has no `--- a/file` and `+++ b/file` lines.")
    paths = [path for patch in patches for path in (patch.path, patch.source) if path is not None]
    if len(paths) > MAX_FILES:
        raise PatchRejected(f"The diff changes {len(paths)} files; send it in parts of {MAX_FILES} files at most.")
    if len(set(paths)) != len(paths):
        raise PatchRejected("The diff names the same file twice; join its hunks.")
    return patches


def _parse_files(lines: list[str]) -> Iterator[FilePatch]:
    at = 0
    while at < len(lines):
        if lines[at].startswith(_GIT):
            patch, at = _parse_git_file(lines, at)
            yield patch
        elif _has_names(lines, at):
            patch, at = _parse_file(lines, at)
            yield patch
        elif lines[at].startswith(("rename from ", "copy from ", *_BINARY)):
            raise PatchRejected(f"Line {at + 1}: renames need their `diff --git` line; binary files and copies no way.")
        else:
            at += 1


def _has_names(lines: list[str], at: int) -> bool:
    return at + 1 < len(lines) and lines[at].startswith("--- ") and lines[at + 1].startswith("+++ ")


def _parse_git_file(lines: list[str], at: int) -> tuple[FilePatch, int]:
    first = at
    headers: dict[str, str] = {}
    at += 1
    while at < len(lines) and (header := _EXTENDED.fullmatch(lines[at].rstrip("\r\n"))):
        headers[header[1]] = header[2]
        at += 1
    if "copy from" in headers:
        raise PatchRejected(f"Line {first + 1}: copies are not supported; give the new file as an added one.")
    if at < len(lines) and lines[at].startswith(_BINARY):
        raise PatchRejected(f"Line {at + 1}: binary files are not supported.")
    mode = _parse_mode(headers, first + 1)
    if "rename from" in headers:
        return _parse_rename(lines, at, headers, mode)
    if _has_names(lines, at):
        patch, at = _parse_file(lines, at)
        return patch.model_copy(update={"mode": mode}), at
    path = _git_path(lines[first], first + 1)
    if "new file mode" in headers:
        return FilePatch(path=path, change="added", mode=mode), at
    if "deleted file mode" in headers:
        return FilePatch(path=path, change="deleted"), at
    if mode is not None:
        return FilePatch(path=path, change="modified", mode=mode), at
    raise PatchRejected(f"Line {at + 1}: {path} has no hunk (`@@ -1,3 +1,4 @@`).")


def _parse_mode(headers: dict[str, str], line: int) -> int | None:
    given = headers.get("new file mode") or headers.get("new mode")
    if given is None:
        return None
    if given not in _MODES:
        raise PatchRejected(f"Line {line}: mode {given} is no file's; symbolic links and submodules are not supported.")
    return _MODES[given]


def _parse_rename(lines: list[str], at: int, headers: dict[str, str], mode: int | None) -> tuple[FilePatch, int]:
    if "rename to" not in headers:
        raise PatchRejected(f"Line {at + 1}: `rename from` without `rename to`.")
    source, path = unquote_path(headers["rename from"]), unquote_path(headers["rename to"])
    hunks: tuple[Hunk, ...] = ()
    if _has_names(lines, at):
        names = _file_name(lines[at], "a/"), _file_name(lines[at + 1], "b/")
        if names != (source, path):
            raise PatchRejected(f"Line {at + 1}: the names are not those of `rename from` and `rename to`.")
        hunks, at = _parse_hunks(lines, at + 2, path)
    return FilePatch(path=path, change="renamed", source=source, mode=mode, hunks=hunks), at


def _git_path(line: str, number: int) -> str:
    """The one path of `diff --git a/x b/x`, where nothing else in the diff names it."""
    rest = line.removeprefix(_GIT).rstrip("\r\n")
    half = len(rest) // 2
    old, new = unquote_path(rest[:half]), unquote_path(rest[half + 1 :])
    if rest[half : half + 1] != " " or old.removeprefix("a/") != new.removeprefix("b/"):
        raise PatchRejected(f"Line {number}: the two names differ, and no `rename from` says why.")
    return new.removeprefix("b/")


def _parse_file(lines: list[str], at: int) -> tuple[FilePatch, int]:
    old, new = _file_name(lines[at], "a/"), _file_name(lines[at + 1], "b/")
    hunks, end = _parse_hunks(lines, at + 2, new or old or "")
    if old is None and new is None:
        raise PatchRejected(f"Line {at + 2}: both sides are /dev/null.")
    if old is None:
        return FilePatch(path=new or "", change="added", hunks=hunks), end
    if new is None:
        return FilePatch(path=old, change="deleted", hunks=hunks), end
    if old != new:
        raise PatchRejected(f"{old} and {new} differ: renames need `rename from` and `rename to`, as git writes them.")
    return FilePatch(path=new, change="modified", hunks=hunks), end


def _parse_hunks(lines: list[str], at: int, path: str) -> tuple[tuple[Hunk, ...], int]:
    hunks: list[Hunk] = []
    while at < len(lines) and (header := _HEADER.match(lines[at])):
        hunk, at = _parse_hunk(lines, at, header)
        hunks.append(hunk)
    if not hunks:
        raise PatchRejected(f"Line {at + 1}: {path} has no hunk (`@@ -1,3 +1,4 @@`).")
    return tuple(hunks), at


def _file_name(line: str, prefix: str) -> str | None:
    name = unquote_path(line[4:].rstrip("\r\n").split("\t")[0].strip())
    return None if name == "/dev/null" else name.removeprefix(prefix)


def _parse_hunk(lines: list[str], at: int, header: re.Match[str]) -> tuple[Hunk, int]:
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
    if at < len(lines) and _has_uncounted_line(lines, at):
        raise PatchRejected(f"Line {at + 1}: the hunk goes on after the -{want_old} +{want_new} lines of its header.")
    return Hunk(start=start, old=tuple(old), new=tuple(new)), at


def _has_uncounted_line(lines: list[str], at: int) -> bool:
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
