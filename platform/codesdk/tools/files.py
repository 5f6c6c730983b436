"""workspace.read, workspace.write, workspace.list."""

from __future__ import annotations

from typing import Any, NamedTuple

from codesdk.domain.canonical import bytes_hash
from codesdk.domain.tool_results import ToolResult
from codesdk.domain.work_budget import WorkBudget
from codesdk.sandbox.port import FileInfo, FileKind, FileRefused, FileWrite
from codesdk.tools.context import ToolContext, file_error_result
from codesdk.tools.media_files import media_result, not_text_result
from codesdk.tools.pages import PAGE_BYTES, fit_text, next_page, room_beside, size_in_page
from codesdk.tools.readable import Readable, ReadRefused, open_readable
from codesdk.tools.text_lines import split_lines
from codesdk.tools.transfers import read_raw, write_upload, written_result

DEFAULT_LINES = 2000
"""Lines that a read returns where the caller names no limit: what the coding agents' own read tools return."""
MAX_SCANNED = 64 * 1024 * 1024
"""Bytes that one read counts lines in. What is further back in a file is reached with `byte_offset`."""
MAX_ENTRIES = 1000
"""Entries of a directory that one call asks the runner for."""


class _Start(NamedTuple):
    """Where a page begins."""

    byte: int
    line: int | None
    """None: too far from the beginning of its line to count the lines between."""


class _Page(NamedTuple):
    """Whole lines, unless not even the first one fits."""

    text: str
    bytes: int
    """Bytes of the file that it stands for."""


def read(given: dict[str, Any], context: ToolContext) -> ToolResult:
    """A page of a text file or of an output: from a line on, or from a byte of that line."""
    if "raw" in given:
        return read_raw(given, context)
    path = given["path"]
    try:
        source = open_readable(path, context)
        if isinstance(source, FileRefused):
            return file_error_result(source)
        return media_result(path, source, context) or _read_text(given, source)
    except UnicodeDecodeError:
        return not_text_result(path, context)
    except ReadRefused as fault:
        return file_error_result(fault.refusal)


def _read_text(given: dict[str, Any], source: Readable) -> ToolResult:
    source.check_text()
    start = _find_start(source, given.get("offset", 1), given.get("byte_offset", 0))
    if start is None:
        return _too_far_result(given["path"])
    return _read_result(given, source, start, _read_page(source, start, given))


def _find_start(source: Readable, line: int, skip: int) -> _Start | None:
    """The first byte of a line, and `skip` bytes after it; the end of the source if it has fewer lines.

    None: too many bytes would have to be counted.
    """
    budget = WorkBudget(MAX_SCANNED)
    at, number = 0, 1
    while number < line:
        data = source.read(at, source.window)
        if not data:
            return _Start(at, line)
        if not budget.spend(len(data)):
            return None
        found = data.count(b"\n")
        if number + found < line:
            at, number = at + len(data), number + found
            continue
        place = -1
        for _ in range(line - number):
            place = data.index(b"\n", place + 1)
        at, number = at + place + 1, line
    if skip > source.window:
        return _Start(min(at + skip, source.size), None)
    return _Start(min(at + skip, source.size), number + source.read(at, skip).count(b"\n"))


def _read_page(source: Readable, start: _Start, given: dict[str, Any]) -> _Page:
    """The lines that fit.

    Raises:
        UnicodeDecodeError: they are not UTF-8.
        ReadRefused: the file can't be read any more.
    """
    most = given.get("max_bytes")
    data = source.read(start.byte, min(source.window, most or PAGE_BYTES))
    is_last = start.byte + len(data) >= source.size
    text, skipped = source.decode(data, is_first=start.byte == 0, is_last=is_last)
    lines = split_lines(text)
    if len(lines) > 1 and not is_last and not lines[-1].endswith("\n"):
        del lines[-1]
    lines = lines[: given.get("limit", DEFAULT_LINES)]
    if most is None:
        lines = _fit_lines(lines, room_beside(given["path"], given["path"]))
    shown = "".join(lines)
    size = skipped + len(shown.encode("utf-8", "surrogateescape"))
    return _Page(shown.encode("utf-8", "surrogateescape").decode("utf-8", "replace"), size)


def _fit_lines(lines: list[str], room: int) -> list[str]:
    """The first lines that fit; of a first line that doesn't, its beginning."""
    for number, line in enumerate(lines):
        taken = size_in_page(line)
        if taken > room:
            return lines[:number] or [fit_text(line, room)]
        room -= taken
    return lines


def _read_result(given: dict[str, Any], source: Readable, start: _Start, page: _Page) -> ToolResult:
    end = start.byte + page.bytes
    goes_on = end < source.size and page.bytes > 0
    is_cut = goes_on and not page.text.endswith("\n")
    last = None if start.line is None else start.line + len(split_lines(page.text)) - 1
    following = _next_arguments(given, page, None if is_cut else last) if goes_on else None
    structured = {
        "path": given["path"],
        "content": page.text,
        "start_line": start.line if source.size else 0,
        "end_line": last,
        "total_lines": source.total_lines,
        "truncated": start.byte > 0 or end < source.size or source.is_cut,
        **({"next": following} if following else {}),
        "sha256": source.sha256,
    }
    notes = []
    if source.size and not page.text:
        notes.append(f"[line {start.line} is after the end; the file has {_extent(source)}]")
    elif start.byte or goes_on:
        place = f"bytes {start.byte}-{end}" if last is None or is_cut else f"lines {start.line}-{last}"
        place = f"line {last}, {place}" if is_cut and last is not None else place
        of = f"{source.size} bytes" if is_cut or last is None else _extent(source)
        more = f"; {next_page('workspace.read', following)}" if following else ""
        notes.append(f"[{place} of {of}{more}]")
    if source.is_cut:
        notes.append("[the file goes on: policy redacts it, so that only this beginning can be read]")
    text = page.text.removesuffix("\n") if notes else page.text
    return ToolResult(text="\n".join(part for part in (text, *notes) if part), structured=structured)


def _next_arguments(given: dict[str, Any], page: _Page, last: int | None) -> dict[str, Any]:
    """`last`: the page's last line if the next page begins with a line; None if it's known by its byte only."""
    skipped = given.get("byte_offset", 0)
    following: dict[str, Any] = {"path": given["path"]}
    if last is None or skipped:
        following |= {"offset": given.get("offset", 1), "byte_offset": skipped + page.bytes}
    else:
        following["offset"] = last + 1
    return following | {name: given[name] for name in ("limit", "max_bytes") if name in given}


def _extent(source: Readable) -> str:
    return f"{source.size} bytes" if source.total_lines is None else str(source.total_lines)


def _too_far_result(path: str) -> ToolResult:
    text = (
        f"Lines are counted in the first {MAX_SCANNED} bytes of {path}, and this one is behind them. Read from a byte of"
        " the file instead: `byte_offset` without `offset`."
    )
    return ToolResult(text=text, is_error=True, code="TOO_FAR")


def write(given: dict[str, Any], context: ToolContext) -> ToolResult:
    """Replace a file's whole content, or make it."""
    if "upload" in given:
        return write_upload(given, context)
    data = given["content"].encode()
    before = context.files.stat(given["path"])
    written = context.write((FileWrite(path=given["path"], content=data, if_sha256=given.get("if_sha256")),))
    if isinstance(written, FileRefused):
        return file_error_result(written)
    return written_result(given["path"], len(data), bytes_hash(data), created=isinstance(before, FileRefused))


def list_directory(given: dict[str, Any], context: ToolContext) -> ToolResult:
    """A page of the entries below a directory, level by level; symlinks are shown and not followed."""
    path, offset = given.get("path", "."), given.get("offset", 0)
    most = given.get("limit", MAX_ENTRIES)
    listing = context.files.list(
        path, depth=given.get("depth", 1), limit=min(most, MAX_ENTRIES), offset=offset, glob=given.get("glob", "")
    )
    if isinstance(listing, FileRefused):
        return file_error_result(listing)
    shown = _fit_entries(listing.entries, room_beside(path, path, given.get("glob", "")))
    end = offset + len(shown)
    following = {**given, "offset": end} if shown and end < listing.total else None
    lines = [entry.path + _KIND_MARKS.get(entry.kind, "") for entry in shown]
    if following:
        lines.append(f"[entries {offset + 1}-{end} of {listing.total}; {next_page('workspace.list', following)}]")
    elif offset:
        lines.append(f"[entries {offset + 1}-{end} of {listing.total}; that is the end]")
    if listing.unscanned:
        lines.append("[some directories have more entries than were looked at; list one of them by its own path]")
    structured = {
        "path": path,
        "entries": [{"path": entry.path, "kind": entry.kind.value, "size": entry.size} for entry in shown],
        "total": listing.total,
        **({"next": following} if following else {}),
        "truncated": following is not None or listing.unscanned,
    }
    nothing = f"Nothing below {path} matches {given['glob']}." if given.get("glob") else f"{path} is empty."
    return ToolResult(text="\n".join(lines) or nothing, structured=structured)


_KIND_MARKS = {FileKind.DIRECTORY: "/", FileKind.SYMLINK: "@"}
_ENTRY_BYTES = len('{"path": "", "kind": "directory", "size": 1234567890123}, ')
"""Bytes that an entry takes in the structured result, without its path."""


def _fit_entries(entries: tuple[FileInfo, ...], room: int) -> tuple[FileInfo, ...]:
    """The first entries that fit a page, at least one."""
    for number, entry in enumerate(entries):
        room -= size_in_page(entry.path) + _ENTRY_BYTES
        if room < 0:
            return entries[: max(1, number)]
    return entries
