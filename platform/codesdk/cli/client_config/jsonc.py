"""Edits one place in a JSON text with comments and keeps every other character.

Clients' JSON files often have comments and trailing commas. Both are replaced by spaces before parsing, so that
offsets in the parsed text are offsets in the original.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

UNIT = "  "
"""Indentation for a text on a single line."""
_DECODER = json.JSONDecoder()
_SPACE = " \t\r\n"


def read(text: str) -> Any:
    """Parse the text.

    Raises:
        ValueError: it is invalid JSON even without comments, or an object has a duplicate key.
    """
    return json.loads(_blank_comments(text), object_pairs_hook=_reject_duplicates)


def put(text: str, path: Sequence[str], value: Any) -> str:
    """Return the text with the value at the path. Creates missing objects. `read(text)` must be an object.

    Raises:
        ValueError: the path leads through a value that is not an object.
    """
    flat = _blank_comments(text)
    inner = _container(text, flat, _skip(flat, 0))
    for depth, key in enumerate(path):
        found = next((member for member in inner.members if member.key == key), None)
        if found is None:
            for name in reversed(path[depth + 1 :]):
                value = {name: value}
            return _append_member(text, inner, value, key)
        if depth == len(path) - 1:
            return text[: found.start] + _dump(value, inner.indent, inner.unit) + text[found.end :]
        if flat[found.start] != "{":
            raise ValueError(f"{'.'.join(path[: depth + 1])} is not an object")
        inner = _container(text, flat, found.start)
    raise ValueError("no path")


def append(text: str, path: Sequence[str], items: Sequence[Any]) -> str:
    """Return the text with the items appended to the list at the path. Creates a missing list, and missing objects.

    Raises:
        ValueError: the value at the path is not a list, or the path leads through a value that is not an object.
    """
    for item in items:
        flat = _blank_comments(text)
        inner = _container(text, flat, _skip(flat, 0))
        for depth, key in enumerate(path):
            found = next((member for member in inner.members if member.key == key), None)
            if found is None:
                return put(text, path, list(items))
            if flat[found.start] != ("[" if depth == len(path) - 1 else "{"):
                raise ValueError(
                    f"{'.'.join(path[: depth + 1])} is not {'a list' if depth == len(path) - 1 else 'an object'}"
                )
            inner = _container(text, flat, found.start)
        text = _append_member(text, inner, item, None)
    return text


@dataclass(frozen=True)
class _Member:
    key: str | None
    start: int
    """Offset of the member's value."""
    end: int


@dataclass(frozen=True)
class _Container:
    """Offsets and layout of an object or a list."""

    close: int
    """Offset of the closing bracket."""
    members: tuple[_Member, ...]
    indent: str
    """Indentation of the members."""
    outer: str
    """Indentation of the closing bracket."""
    unit: str
    comma: bool
    """Whether there is a trailing comma."""


def _container(text: str, flat: str, start: int) -> _Container:
    at, members, keyed = _skip(flat, start + 1), [], flat[start] == "{"
    first = at
    while flat[at] not in "}]":
        key = None
        if keyed:
            key, at = _DECODER.raw_decode(flat, at)
            at = _skip(flat, _skip(flat, at) + 1)  # skip the colon
        _, end = _DECODER.raw_decode(flat, at)
        members.append(_Member(key, at, end))
        at = _skip(flat, end)
        if flat[at] == ",":
            at = _skip(flat, at + 1)
    outer = _indent(text, start)
    own = _indent(text, first) if members and not text[text.rfind("\n", 0, first) + 1 : first].strip() else ""
    unit = own.removeprefix(outer) if own.startswith(outer) and own != outer else UNIT
    comma = bool(members) and "," in _strip_comments(text[members[-1].end : at])
    return _Container(at, tuple(members), outer + unit, outer, unit, comma)


def _append_member(text: str, inner: _Container, value: Any, key: str | None) -> str:
    """Append a member on lines of its own, after any comments behind the last one."""
    named = "" if key is None else f"{json.dumps(key, ensure_ascii=False)}: "
    head, tail = text[: inner.close], text[inner.close :]
    if inner.members and not inner.comma:
        end = inner.members[-1].end
        head = f"{head[:end]},{head[end:]}"
    written = _dump(value, inner.indent, inner.unit)
    return f"{head.rstrip(_SPACE)}\n{inner.indent}{named}{written}\n{inner.outer}{tail}"


def _dump(value: Any, indent: str, unit: str) -> str:
    return json.dumps(value, indent=unit, ensure_ascii=False).replace("\n", f"\n{indent}")


def _indent(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _skip(flat: str, at: int) -> int:
    while flat[at] in _SPACE:
        at += 1
    return at


def _blank_comments(text: str) -> str:
    """Return the text with comments and trailing commas replaced by spaces."""
    flat = list(_strip_comments(text))
    comma, inside, at = -1, False, 0
    while at < len(flat):
        char = flat[at]
        if inside:
            at += char == "\\"
            inside = char != '"'
        elif char == '"':
            inside, comma = True, -1
        elif char == ",":
            comma = at
        elif char in "}]":
            if comma >= 0:
                flat[comma] = " "
            comma = -1
        elif char not in _SPACE:
            comma = -1
        at += 1
    return "".join(flat)


def _strip_comments(text: str) -> str:
    kept: list[str] = []
    at = 0
    while at < len(text):
        if text[at] == '"':
            end = at + 1
            while end < len(text) and text[end] != '"':
                end += 1 + (text[end] == "\\")
            end += 1
            kept.append(text[at:end])
        elif text.startswith("//", at):
            end = text.find("\n", at)
            end = len(text) if end < 0 else end
            kept.append(" " * (end - at))
        elif text.startswith("/*", at):
            end = text.find("*/", at + 2)
            end = len(text) if end < 0 else end + 2
            kept.append("".join(char if char == "\n" else " " for char in text[at:end]))
        else:
            end = at + 1
            kept.append(text[at])
        at = end
    return "".join(kept)


def _reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object has a duplicate key")
    return found
