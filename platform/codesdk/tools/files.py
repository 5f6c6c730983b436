"""workspace.read, workspace.write, workspace.list."""

from __future__ import annotations

import codecs
from typing import Any

from codesdk.domain.canonical import bytes_hash
from codesdk.domain.tool_results import ToolResult
from codesdk.sandbox.port import FileRefused, FileWrite
from codesdk.tools.context import ToolContext, file_error_result
from codesdk.tools.text_lines import split_lines

MAX_READ_CHARACTERS = 256 * 1024
"""Characters that one read returns: a file that is one line of megabytes must not fill the model's context."""
DEFAULT_LINES = 2000
"""Lines that a read returns where the caller names no limit: what the coding agents' own read tools return."""


def read(given: dict[str, Any], context: ToolContext) -> ToolResult:
    """Lines of a text file, numbered from 1."""
    content = context.files.read(given["path"], length=context.profile.max_read_bytes)
    if isinstance(content, FileRefused):
        return file_error_result(content)
    cut = content.size - len(content.data)
    try:
        # Where the read was cut, it may have been inside a character: that one is left out.
        text = codecs.getincrementaldecoder("utf-8")().decode(content.data, final=cut == 0)
    except UnicodeDecodeError:
        return ToolResult(
            text=f"{given['path']} is not UTF-8 text ({content.size} bytes). Read it with a command instead.",
            is_error=True,
            code="NOT_TEXT",
        )
    lines = split_lines(context.clean(text, is_cut=cut > 0))
    first = given.get("offset", 1)
    wanted = lines[first - 1 : first - 1 + given.get("limit", DEFAULT_LINES)]
    chosen, left_out = _fit_lines(wanted)
    last = first + len(chosen) - 1
    whole = first == 1 and last == len(lines) and not left_out
    structured = {
        "path": given["path"],
        "content": "".join(chosen),
        "start_line": first if lines else 0,
        "end_line": last,
        "total_lines": len(lines),
        "truncated": not whole or cut > 0,
        "sha256": content.sha256,
    }
    if first > max(1, len(lines)):
        note = f"[line {first} is after the end; the file has {len(lines)} lines]"
    else:
        note = "" if whole else f"\n[lines {first}-{last} of {len(lines)}]"
    if left_out:
        note += f"\n[line {last} was cut: {left_out} of its characters are left out]"
    if cut:
        note += f"\n[the file goes on: {cut} of its {content.size} bytes were not read]"
    return ToolResult(text="".join(chosen) + note, structured=structured)


def _fit_lines(lines: list[str]) -> tuple[list[str], int]:
    """The first lines that fit, at least one, and how many characters of the last were cut off."""
    room = MAX_READ_CHARACTERS
    for number, line in enumerate(lines):
        if len(line) > room:
            return (lines[:number], 0) if number else ([line[:room]], len(line) - room)
        room -= len(line)
    return lines, 0


def write(given: dict[str, Any], context: ToolContext) -> ToolResult:
    """Replace a file's whole content, or make it."""
    data = given["content"].encode()
    before = context.files.stat(given["path"])
    written = context.write((FileWrite(path=given["path"], content=data),))
    if isinstance(written, FileRefused):
        return file_error_result(written)
    created = isinstance(before, FileRefused)
    structured = {"path": given["path"], "bytes": len(data), "created": created, "sha256": bytes_hash(data)}
    verb = "Created" if created else "Wrote"
    return ToolResult(text=f"{verb} {given['path']} ({len(data)} bytes).", structured=structured)


def list_directory(given: dict[str, Any], context: ToolContext) -> ToolResult:
    """Entries beneath a directory; symlinks are shown and not followed."""
    path = given.get("path", ".")
    listing = context.files.list(path, depth=given.get("depth", 1))
    if isinstance(listing, FileRefused):
        return file_error_result(listing)
    entries = [{"path": entry.path, "kind": entry.kind.value, "size": entry.size} for entry in listing.entries]
    shown = [entry.path + {"directory": "/", "symlink": "@"}.get(entry.kind, "") for entry in listing.entries]
    if listing.truncated:
        shown.append(f"[cut after {len(entries)} entries; list a directory below]")
    structured = {"path": path, "entries": entries, "truncated": listing.truncated}
    return ToolResult(text="\n".join(shown) or f"{path} is empty.", structured=structured)
