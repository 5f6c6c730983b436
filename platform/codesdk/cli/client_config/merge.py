"""Merges our entry into a client's configuration file. Parses both versions to verify that nothing else changed."""

from __future__ import annotations

import re
import tomllib
from typing import Any

from codesdk.cli.client_config import jsonc
from codesdk.cli.client_config.clients import ConfigEntry, as_json, as_toml
from codesdk.errors import ExitCode, Fault

_HEADER = re.compile(r"\s*\[\[?\s*(?P<name>[^\]]+?)\s*\]\]?\s*(#.*)?", re.ASCII)


class NotMergeable(Fault):
    """The client's file can't be changed safely; it is unchanged."""

    code = "NOT_MERGEABLE"
    status = 409
    exit_code = ExitCode.DATA


def merge_json(text: str, piece: ConfigEntry) -> str:
    """Return the file's text with our entry added or replaced. Keeps comments and layout.

    Raises:
        NotMergeable: it is not a JSON object, even with comments allowed, or another value is in the way.
    """
    if not text.strip():
        return as_json(piece)
    try:
        wanted = jsonc.read(text)
        _set_path(wanted, piece.path, piece.entry)
        merged = jsonc.put(text, piece.path, piece.entry)
        for path, value in piece.more:
            merged = jsonc.append(merged, path[0], _append_missing(wanted, path, value))
        after = jsonc.read(merged)
    except ValueError as error:
        raise _not_mergeable(f"it is not JSON that we can extend ({error})") from error
    if after != wanted:
        raise _not_mergeable("its layout cannot be extended safely")
    return merged


def merge_toml(text: str, piece: ConfigEntry) -> str:
    """Return the file's text with our entry added or replaced.

    Rewrites only our own tables, so comments and layout stay.

    Raises:
        NotMergeable: the merge would change a value outside our entry.
    """
    try:
        before = tomllib.loads(text)
        kept = _remove_own_tables(text, piece.path).rstrip()
        written = f"{kept}\n\n{as_toml(piece)}" if kept else as_toml(piece)
        merged = written.replace("\r\n", "\n").replace("\n", "\r\n") if "\r\n" in text else written
        after = tomllib.loads(merged)
    except tomllib.TOMLDecodeError as error:
        raise _not_mergeable(f"it is not TOML that we can extend ({error})") from error
    ours = _pop_path(after, piece.path)
    _pop_path(before, piece.path)
    if ours != piece.entry or before != after:
        raise _not_mergeable("its layout of our entry cannot be replaced safely")
    return merged


def has_entry(text: str, piece: ConfigEntry, *, toml: bool) -> bool:
    """Whether the text has our entry already. The text must be mergeable."""
    found: Any = tomllib.loads(text) if toml else jsonc.read(text)
    for key in piece.path:
        found = found.get(key) if isinstance(found, dict) else None
    return found is not None


def _remove_own_tables(text: str, path: tuple[str, ...]) -> str:
    kept: list[str] = []
    cut: list[str] = []
    ours = False
    for line in text.split("\n"):
        header = _HEADER.fullmatch(line)
        if header is not None:
            keys = tuple(key.strip().strip("\"'") for key in header["name"].split("."))
            kept += _trailing_comments(cut)
            cut, ours = [], keys[: len(path)] == path
        (cut if ours else kept).append(line)
    return "\n".join(kept + _trailing_comments(cut))


def _trailing_comments(cut: list[str]) -> list[str]:
    """Return the comments after a table's last value.

    They may belong to what follows, or be commented-out values, so they stay.
    """
    start = len(cut)
    while start and (not cut[start - 1].strip() or cut[start - 1].lstrip().startswith("#")):
        start -= 1
    first = next((at for at in range(start, len(cut)) if cut[at].strip()), len(cut))
    return cut[first:]


def _pop_path(found: dict[str, Any], path: tuple[str, ...]) -> Any:
    """Remove and return the value at the path, and remove tables that become empty."""
    inner = found.get(path[0])
    if len(path) == 1:
        return found.pop(path[0], None)
    taken = _pop_path(inner, path[1:]) if isinstance(inner, dict) else None
    if inner == {}:
        del found[path[0]]
    return taken


def _set_path(found: Any, path: tuple[str, ...], value: Any) -> None:
    for key in path[:-1]:
        found = found.setdefault(key, {}) if isinstance(found, dict) else None
    if not isinstance(found, dict):
        raise _not_mergeable(f"{'.'.join(path[:-1]) or 'the whole'} is not an object in it")
    found[path[-1]] = value


def _append_missing(found: dict[str, Any], path: tuple[str, ...], wanted: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Append the wanted items that the list doesn't have, by `id`, and return them."""
    there = found.setdefault(path[0], [])
    if not isinstance(there, list):
        raise _not_mergeable(f"{path[0]} is not a list in it")
    known = {each.get("id") for each in there if isinstance(each, dict)}
    new = [each for each in wanted if each["id"] not in known]
    there.extend(new)
    return new


def _not_mergeable(why: str) -> NotMergeable:
    return NotMergeable(
        f"The client's file was not changed: {why}.", advice="Print the entry (without --write) and add it by hand."
    )
