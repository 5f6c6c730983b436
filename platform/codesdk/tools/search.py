"""workspace.search: ripgrep in the sandbox, as the tool user; a hostile pattern can only burn its own limits.

ripgrep opens files by their paths, so a process of the sandbox can swap a directory for a link while it runs. What it
found is therefore only a proposal: each line is read again through the runner, beneath the workspace, and what isn't
there byte for byte is left out.
"""

from __future__ import annotations

import base64
import codecs
import json
import posixpath
from collections.abc import Iterator
from itertools import groupby, islice
from typing import Any, NamedTuple

from pydantic import Field

from codesdk.domain.model import FrozenModel
from codesdk.domain.search_globs import is_exclusion, search_globs
from codesdk.domain.tool_results import ToolResult
from codesdk.domain.work_budget import WorkBudget
from codesdk.sandbox.egress.rules import DENY_ALL
from codesdk.sandbox.port import Chunk, ExitKind, FileInfo, FileKind, FileRefused, spell, unspell
from codesdk.tools.context import ToolContext, file_error_result
from codesdk.tools.pages import next_page, room_beside, size_in_page

DEFAULT_RESULTS = 200
LINE_BYTES = 500
"""Longest line shown: minified files have lines of megabytes."""
_MATCH_BYTES = len('{"path": "", "line": 123456, "text": ""}, ::123456\n')
"""Bytes that a match takes in a result, without its path and its text."""
MAX_HIDDEN = 50
"""Hidden entries of a directory about which policy is asked one by one."""
WINDOW_BYTES = 16 * 1024
"""Lines of one file that are no further apart are read at once."""
MAX_VERIFIED = 128 * 1024 * 1024
"""Bytes that one search reads again."""
_ENCODINGS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
"""What ripgrep recognizes at the beginning of a file; it searches the text as UTF-8 without the mark."""


class _Line(FrozenModel):
    """A line that ripgrep says matches."""

    path: bytes
    number: int = Field(ge=1)
    offset: int = Field(ge=0, le=2**53)
    """Of its first byte in the file, without a byte order mark."""
    content: bytes = Field(min_length=1)


class _Match(NamedTuple):
    """A line that is there, as it is shown."""

    number: int
    """Its place in what ripgrep found, from 0 on."""
    path: str
    line: int
    text: str


_INSTEAD = {"SYMLINK": "what it points to", "INVALID_PATH": "the directory above it"}


class _Scope(NamedTuple):
    """What one search looks at."""

    places: tuple[str, ...]
    hidden: bool
    """Hidden files everywhere below."""


class _Found(NamedTuple):
    """What ripgrep said."""

    lines: list[_Line]
    binaries: frozenset[bytes]
    """Binary files with a match."""
    is_whole: bool
    """It searched to its end."""


def search(given: dict[str, Any], context: ToolContext) -> ToolResult:
    """Lines that match a regular expression (Rust syntax)."""
    place = given.get("path", ".")
    # rg follows whatever it is given by name, and every path that the container has; what is below it follows no link.
    there = context.files.stat(place)
    if isinstance(there, FileRefused):
        return file_error_result(there)
    if there.kind is FileKind.SYMLINK or unspell(place) != place:
        code, why = (
            ("SYMLINK", "is a symbolic link") if there.kind is FileKind.SYMLINK else ("INVALID_PATH", "is an odd name")
        )
        return ToolResult(text=f"{place} {why}; search {_INSTEAD[code]}.", is_error=True, code=code)
    scope = _scope(given, place, there, context)
    pieces: dict[str, list[bytes]] = {"stdout": [], "stderr": []}

    def collect(chunk: Chunk) -> None:
        pieces[chunk.stream].append(chunk.data)

    result = context.run(_argv(given, scope, whole_lines=context.redactor is not None), collect, egress=DENY_ALL)
    if result.kind is ExitKind.SPAWN_FAILED:
        return ToolResult(
            text="This sandbox image has no ripgrep. Use an image with `rg`, or search with a command.",
            is_error=True,
            code="NO_RIPGREP",
        )
    if result.kind is not ExitKind.EXITED or result.exit_code not in (0, 1, 2):
        return ToolResult(text=f"The search did not end well: {result.kind}.", is_error=True, code=result.kind.upper())
    found, errors = _parse(b"".join(pieces["stdout"])), b"".join(pieces["stderr"])
    if result.exit_code == 2 and not found.lines and not found.is_whole:  # noqa: PLR2004 (rg(1): an error)
        text = errors.decode("utf-8", "replace").strip() or "Nothing was found, but some files could not be read."
        return ToolResult(text=text, is_error=True, code="SEARCH_FAILED")
    first, most = given.get("offset", 0), given.get("max_results", DEFAULT_RESULTS)
    shows = _Shown(given, scope, context)
    lines = list(islice((line for line in found.lines if shows(line.path)), first, first + most + 1))
    binaries = [_path_text(path) for path in found.binaries if shows(path)]
    left_out = _left_out(given, scope, binaries, errors.count(b"\n") if found.is_whole else 0)
    return _page(given, lines, list(_Verifier(context).matches(lines[:most])), left_out)


def _scope(given: dict[str, Any], place: str, there: FileInfo, context: ToolContext) -> _Scope:
    """Hidden files as far as policy lets this tool read them: all, or those directly in the directory one by one."""
    hidden = given.get("hidden")
    if hidden is not None or there.kind is not FileKind.DIRECTORY:
        return _Scope((place,), hidden is True)
    if context.allows({**given, "hidden": True}):
        return _Scope((place,), hidden=True)
    listing = context.files.list(place, glob=".*", limit=MAX_HIDDEN)
    entries = () if isinstance(listing, FileRefused) else listing.entries
    named = (
        entry.path
        for entry in entries
        # rg would follow a link that it's given by name. What git keeps in .git is no text of the workspace.
        if entry.kind in (FileKind.FILE, FileKind.DIRECTORY)
        if posixpath.basename(entry.path) != ".git" and unspell(entry.path) == entry.path
    )
    return _Scope((place, *(path for path in named if context.allows({**given, "path": path}))), hidden=False)


class _Shown:
    """Whether a file's matches are shown. Those of others are not counted: that would tell what they hold."""

    def __init__(self, given: dict[str, Any], scope: _Scope, context: ToolContext) -> None:
        self._scope = scope
        self._context = context
        self._known: dict[bytes, bool] = {}
        globs = [glob for glob in search_globs(given.get("glob", "")) if not is_exclusion(glob)]
        self._hidden = scope.hidden or any(
            part.startswith((".", "{.", "[.")) for glob in globs for part in glob.split("/")
        )

    def __call__(self, path: bytes) -> bool:
        if path not in self._known:
            text = _path_text(path)
            self._known[path] = (self._hidden or not self._is_hidden(text)) and not self._context.denies_read(text)
        return self._known[path]

    def _is_hidden(self, path: str) -> bool:
        """A `glob` makes ripgrep search the hidden files that match it, too."""
        place = next((each for each in reversed(self._scope.places) if path == each or path.startswith(f"{each}/")), "")
        return any(part.startswith(".") and part != ".." for part in path[len(place) :].split("/"))


def _path_text(path: bytes) -> str:
    return spell(path).removeprefix("./")


def _left_out(given: dict[str, Any], scope: _Scope, binaries: list[str], unreadable: int) -> list[str]:
    words = []
    if not scope.hidden:
        shown = [path for path in scope.places[1:] if len(path) <= LINE_BYTES][:5]
        but = f" but {', '.join(shown)}{' and others' if len(scope.places) > 1 + len(shown) else ''}" if shown else ""
        words.append(f"hidden files{but} (`hidden: true` searches them)")
    if not given.get("ignored"):
        words.append("files that git ignores (`ignored: true` searches them)")
    if binaries:
        named = ", ".join(path[:LINE_BYTES] for path in sorted(binaries)[:5])
        words.append(f"{len(binaries)} binary files with a match: {named}")
    if unreadable:
        words.append(f"{unreadable} files or directories that can't be read")
    return words


def _page(given: dict[str, Any], found: list[_Line], matches: list[_Match], left_out: list[str]) -> ToolResult:
    """The matches that fit a page."""
    room = room_beside(*(value for value in given.values() if isinstance(value, str)), *left_out)
    shown: list[_Match] = []
    for match in matches:
        room -= size_in_page(match.path) + size_in_page(match.text) + _MATCH_BYTES
        if room < 0 and shown:
            break
        shown.append(match)
    # Where all fit, those after the last one that was looked at come next, also those that were left out behind it.
    looked_at = min(len(found), given.get("max_results", DEFAULT_RESULTS))
    done = matches[len(shown)].number if len(shown) < len(matches) else looked_at
    lines = [f"{match.path}:{match.line}:{match.text}" for match in shown]
    if changed := done - len(shown):
        lines.append(f"[{changed} left out: their files changed meanwhile, or could not be read again]")
    following = {**given, "offset": given.get("offset", 0) + done} if done < len(found) else None
    if following:
        lines.append(f"[cut after {len(shown)} matches; {next_page('workspace.search', following)}]")
    structured = {
        "matches": [{"path": match.path, "line": match.line, "text": match.text} for match in shown],
        **({"next": following} if following else {}),
        "truncated": following is not None,
        "left_out": left_out,
    }
    if not lines:
        lines.append("No match.")
    if left_out:
        lines.append(f"[left out: {'; '.join(left_out)}]")
    return ToolResult(text="\n".join(lines), structured=structured)


def _argv(given: dict[str, Any], scope: _Scope, *, whole_lines: bool) -> tuple[str, ...]:
    """`whole_lines`: what is redacted must not be cut in half before."""
    # `--binary`: ripgrep then says of a binary file that it has a match. Its lines are not shown.
    argv = ["rg", "--json", "--no-config", "--binary", "--sort=path"]
    if not whole_lines:
        argv += [f"--max-columns={LINE_BYTES}", "--max-columns-preview"]
    if given.get("ignore_case"):
        argv.append("--ignore-case")
    if given.get("ignored"):
        argv.append("--no-ignore")
    place = scope.places[0]
    for glob in search_globs(given.get("glob", "")):
        argv.append(f"--glob={glob}")
        if "/" in glob and place != "." and not set(place) & set("*?[{\\"):
            # Written from the searched directory on as well as from the workspace.
            sign, path = ("!", glob[1:]) if is_exclusion(glob) else ("", glob)
            argv.append(f"--glob={sign}{posixpath.join(place, path.lstrip('/'))}")
    if scope.hidden:
        argv += ["--hidden", "--glob=!.git"]
    return (*argv, "--regexp", given["pattern"], "--", *scope.places)


def _parse(output: bytes) -> _Found:
    lines: list[_Line] = []
    binaries: set[bytes] = set()
    is_whole = False
    for text in output.split(b"\n"):
        try:
            record = json.loads(text)
            kind, data = record["type"], record["data"]
            if kind == "match":
                lines.append(
                    _Line(
                        path=_decode_field(data["path"]),
                        number=data["line_number"],
                        offset=data["absolute_offset"],
                        content=_decode_field(data["lines"]),
                    )
                )
            elif kind == "end" and data["binary_offset"] is not None:
                binaries.add(_decode_field(data["path"]))
            is_whole = is_whole or kind == "summary"
        except (ValueError, LookupError, TypeError, RecursionError):
            continue  # the last record of an output that passed its limit is cut in half; another `rg` may say anything
    return _Found([line for line in lines if line.path not in binaries], frozenset(binaries), is_whole)


def _decode_field(field: dict[str, str]) -> bytes:
    # rg gives base64 where a path or a line is not UTF-8.
    return field["text"].encode() if "text" in field else base64.b64decode(field["bytes"])


class _Verifier:
    """Reads lines again, beneath the workspace."""

    def __init__(self, context: ToolContext) -> None:
        self._context = context
        self._budget = WorkBudget(MAX_VERIFIED)
        # Only what is shown has to be read, but redactions need whole lines.
        self._longest = 4 * LINE_BYTES if context.redactor is None else context.profile.max_read_bytes

    def matches(self, lines: list[_Line]) -> Iterator[_Match]:
        """Those that are there, as they are shown."""
        number = -1
        for path, group in groupby(lines, lambda line: line.path):
            rest = list(group)
            decoded: bytes | None = None
            while rest:
                window = self._first_window(rest)
                rest = rest[len(window) :]
                start = window[0].offset
                data = self._read(path, start, self._end(window[-1]) - start)
                for line in window:
                    number += 1
                    wanted = line.content[: self._longest]
                    if not data.startswith(wanted, line.offset - start):
                        decoded = self._read_decoded(path) if decoded is None else decoded
                        if not decoded.startswith(wanted, line.offset):
                            continue
                    yield self._shown(number, line, wanted)

    def _first_window(self, lines: list[_Line]) -> list[_Line]:
        """The first lines of a file that are read at once."""
        start = lines[0].offset
        for count, line in enumerate(lines):
            if count and not (start < line.offset and self._end(line) - start <= WINDOW_BYTES):
                return lines[:count]
        return lines

    def _end(self, line: _Line) -> int:
        return line.offset + min(len(line.content), self._longest)

    def _read(self, path: bytes, offset: int, length: int) -> bytes:
        """Empty for what can't be read."""
        if self._budget.left <= 0:
            return b""
        found = self._context.files.read(spell(path), offset=offset, length=length)
        if isinstance(found, FileRefused):
            return b""
        self._budget.spend(len(found.data))
        return found.data

    def _read_decoded(self, path: bytes) -> bytes:
        """A file with a byte order mark, as ripgrep searches it; empty for any other."""
        data = self._read(path, 0, self._context.profile.max_read_bytes)
        for mark, encoding in _ENCODINGS:
            if data.startswith(mark):
                return data[len(mark) :].decode(encoding, "replace").encode()
        return b""

    def _shown(self, number: int, line: _Line, content: bytes) -> _Match:
        text = self._context.clean(content.decode("utf-8", "replace"), is_cut=len(content) < len(line.content))
        return _Match(number, _path_text(line.path), line.number, text.rstrip("\n")[:LINE_BYTES])
