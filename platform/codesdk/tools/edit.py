"""workspace.edit: replaces a text of a file by another, exactly once or everywhere."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from codesdk.domain.canonical import bytes_hash
from codesdk.domain.tool_results import ToolResult
from codesdk.sandbox.port import FileError, FileRefused, FileWrite
from codesdk.tools.context import ToolContext, file_error_result
from codesdk.tools.nearest_lines import nearest_lines, shown
from codesdk.tools.text_lines import split_lines

ABSENT = "absent"
MAX_PLACES = 10
"""Lines that are named if the text is found at several places."""
MAX_REPLACED = 100_000
"""Places that one call replaces: about a quarter of a second."""
MAX_ADDED = 16 * 1024 * 1024
"""Characters of all new texts, if there is more than one."""
MAX_NEAREST = 12
"""Lines that are shown if the text is not found."""


class EditRejected(Exception):
    """The text is not there, or not once; the message says what to do."""


def edit(given: dict[str, Any], context: ToolContext) -> ToolResult:
    """Replace a text. The file is only written if it still is as it was read."""
    path, old, new = given["path"], given["old_text"], given["new_text"]
    replace_all = given.get("replace_all", False)
    content = context.files.read(path, length=context.profile.max_read_bytes)
    if isinstance(content, FileRefused):
        if content.error is FileError.NOT_FOUND and not old:
            return _write(path, new, ABSENT, context)
        return _unchanged(file_error_result(content))
    if len(content.data) != content.size:
        return _refusal(f"{path} is too large to edit ({content.size} bytes)", "TOO_LARGE")
    try:
        text = content.data.decode()
    except UnicodeDecodeError:
        return _refusal(f"{path} is not UTF-8 text", "NOT_TEXT")
    try:
        changed, lines = replace_text(text, old, new, replace_all=replace_all)
    except EditRejected as rejected:
        nearest = _nearest(old, context.clean(text)) if old and old not in text else ""
        return _refusal(f"{path}: {rejected}{nearest}", "EDIT_REJECTED")
    return _write(path, changed, bytes_hash(content.data), context, lines)


def replace_text(text: str, old: str, new: str, *, replace_all: bool) -> tuple[str, list[int]]:
    r"""The text with `old` replaced, and the lines where it was.

    Line ends count as equal: `\n` in `old` also stands for `\r\n`, and for the end of a text without a last newline.
    What is written has the line ends of the lines around it.

    Raises:
        EditRejected: `old` is empty and the text is not; it is not there; it is there more than once; nothing changes;
            the result is too large.
    """
    if not old:
        if text:
            raise EditRejected(
                "old_text is empty, which makes a new file, and this file is not empty. Give the text to replace, or"
                " replace the whole file with workspace.write."
            )
        return new, [1]
    if old == new:
        raise EditRejected("old_text and new_text are the same.")
    searched, found, places = _search(
        text, old, MAX_REPLACED if replace_all else MAX_PLACES, overlapping=not replace_all
    )
    if not places:
        raise EditRejected("old_text is not in the file.")
    lines = _lines(searched, places)
    if len(places) > MAX_REPLACED:
        raise EditRejected(
            f"old_text is in the file more than {MAX_REPLACED} times. Change so many places with a command."
        )
    if len(places) > 1 and not replace_all:
        count = f"{len(places)} times" if len(places) <= MAX_PLACES else f"more than {MAX_PLACES} times"
        raise EditRejected(
            f"old_text is in the file {count}, at lines {lines[:MAX_PLACES]}. Add lines around it until it is there once,"
            " or set replace_all."
        )
    if len(places) > 1 and len(places) * len(new) > MAX_ADDED:
        raise EditRejected(f"the file would be too large with {len(places)} times the new text.")
    changed = _replaced(searched, found, places, old, new)
    if searched != text:
        changed = changed.removesuffix("\n").removesuffix("\r")
    if changed == text:
        raise EditRejected("old_text and new_text differ only in line ends, and the file keeps its own.")
    return changed, lines


def _search(text: str, old: str, most: int, *, overlapping: bool) -> tuple[str, str, list[int]]:
    """The text, what was found in it and where: up to one place more than `most`."""
    end = "\r\n" if "\r\n" in text else "\n"
    completed = [text + end] if text and old.endswith("\n") and not text.endswith("\n") else []
    for searched in (text, *completed):
        for found in _spellings(old, text):
            step = 1 if overlapping else len(found)
            if places := list(islice(_places(searched, found, step), most + 1)):
                return searched, found, places
    return text, old, []


def _spellings(old: str, text: str) -> Iterator[str]:
    """The text as it is given, and with the line ends of the file."""
    yield old
    if "\r\n" in old:
        yield old.replace("\r\n", "\n")
    elif "\r\n" in text and "\n" in old:
        yield old.replace("\n", "\r\n")


def _places(text: str, old: str, step: int) -> Iterator[int]:
    at = text.find(old)
    while at >= 0:
        yield at
        at = text.find(old, at + step)


def _lines(text: str, places: list[int]) -> list[int]:
    lines: list[int] = []
    at, line = 0, 1
    for place in places:
        line += text.count("\n", at, place)
        at = place
        lines.append(line)
    return lines


def _replaced(text: str, found: str, places: list[int], old: str, new: str) -> str:
    """The text with `new` at the places of `found`, with the line ends that are used there."""
    keeps_ends = "\r" in new and "\r" not in old  # the caller wants these
    lf = new.replace("\r\n", "\n")
    crlf = lf.replace("\n", "\r\n")
    parts: list[str] = []
    at, newline, last = 0, -1, text.rfind("\n")
    for place in places:
        parts.append(text[at:place])
        at = place + len(found)
        if newline < at - 1 and newline != last:
            newline = text.find("\n", at - 1)
            newline = newline if newline >= 0 else last
        ends_crlf = newline > 0 and text[newline - 1] == "\r"
        parts.append(new if keeps_ends else crlf if ends_crlf else lf)
    return "".join([*parts, text[at:]])


def _nearest(old: str, text: str) -> str:
    near = nearest_lines(split_lines(old), text)
    if near is None:
        return " Read the file again."
    rows = [
        f"{number}: {shown(line.rstrip())}" for number, line in enumerate(near.lines[:MAX_NEAREST], start=near.line)
    ]
    return "\n".join([f" The nearest lines: {near.difference}.", *rows])


def _write(path: str, text: str, if_sha256: str, context: ToolContext, lines: list[int] | None = None) -> ToolResult:
    data = text.encode()
    written = context.write((FileWrite(path=path, content=data, if_sha256=if_sha256),))
    if isinstance(written, FileRefused):
        return _unchanged(file_error_result(written))
    created = if_sha256 == ABSENT
    at = lines or [1]
    structured = {
        "path": path,
        "created": created,
        "replacements": len(at),
        "lines": at[:MAX_PLACES],
        "bytes": len(data),
        "sha256": bytes_hash(data),
    }
    if created:
        return ToolResult(text=f"Created {path} ({len(data)} bytes).", structured=structured)
    places = f"at line {at[0]}" if len(at) == 1 else f"at {len(at)} places, the first at line {at[0]}"
    return ToolResult(text=f"Edited {path} {places}.", structured=structured)


def _refusal(what: str, code: str) -> ToolResult:
    return _unchanged(ToolResult(text=what, is_error=True, code=code))


def _unchanged(refused: ToolResult) -> ToolResult:
    return refused.model_copy(update={"text": f"Nothing was changed. {refused.text}"})
