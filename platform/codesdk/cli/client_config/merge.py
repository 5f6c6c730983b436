"""Merges our entry into a client's configuration file. Parses both versions to verify that nothing else changed."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import Any

from codesdk.cli.client_config import jsonc
from codesdk.cli.client_config.clients import as_json, as_toml, toml_line
from codesdk.cli.client_config.settings import ConfigEntry, Setting
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
        _reject_overrides(wanted, piece)
        _set_path(wanted, piece.path, piece.entry)
        merged = jsonc.put(text, piece.path, piece.entry)
        for setting in piece.more:
            if setting.add:
                merged = jsonc.append(merged, setting.path, _append_missing(wanted, setting))
            else:
                _set_path(wanted, setting.path, setting.value)
                merged = jsonc.put(merged, setting.path, setting.value)
        after = jsonc.read(merged)
    except ValueError as error:
        raise _not_mergeable(f"it is not JSON that we can extend ({error})") from error
    if after != wanted:
        raise _not_mergeable("its layout cannot be extended safely")
    return merged


def merge_toml(text: str, piece: ConfigEntry) -> str:
    """Return the file's text with our entry and settings added or replaced. Comments and layout stay.

    Raises:
        NotMergeable: the merge would change another value.
    """
    table = isinstance(piece.entry, dict)
    settings = piece.more if table else (*piece.more, Setting(piece.path, piece.entry))
    try:
        wanted, kept = tomllib.loads(text), text.replace("\r\n", "\n")
        _reject_overrides(wanted, piece)
        for setting in reversed(settings):  # a new line goes first in its table
            _set_path(wanted, setting.path, setting.value)
            kept = _set_toml_line(kept, setting)
        if table:
            _pop_path(wanted, piece.path)
            rest, written = _remove_own_tables(kept, piece.path).rstrip(), as_toml(ConfigEntry(piece.path, piece.entry))
            kept = f"{rest}\n\n{written}" if rest else written
        merged = kept.replace("\n", "\r\n") if "\r\n" in text else kept
        after = tomllib.loads(merged)
    except tomllib.TOMLDecodeError as error:
        raise _not_mergeable(f"it is not TOML that we can extend ({error})") from error
    ours = _pop_path(after, piece.path) if table else piece.entry
    if ours != piece.entry or wanted != after:
        raise _not_mergeable("its layout of our entry and settings cannot be replaced safely")
    return merged


def _set_toml_line(text: str, setting: Setting) -> str:
    """Set one key in its table: in place of its line, behind the table's header, or in a new table at the end."""
    *table, key = setting.path
    line = toml_line(key, setting.value)
    lines = text.split("\n")
    headers = [at for at, each in enumerate(lines) if _HEADER.fullmatch(each)]
    own = [at for at in headers if _header_keys(lines[at]) == tuple(table)]
    if table and not own:
        rest = text.rstrip()
        return f"{rest}\n\n[{'.'.join(table)}]\n{line}\n" if rest else f"[{'.'.join(table)}]\n{line}\n"
    start = own[0] + 1 if table else 0
    end = next((at for at in headers if at >= start), len(lines))
    named = re.compile(rf"\s*[\"']?{re.escape(key)}[\"']?\s*=.*")
    found = next((at for at in range(start, end) if named.fullmatch(lines[at])), None)
    if found is not None:
        if tomllib.loads(lines[found]) != tomllib.loads(line):  # a comment behind the same value stays
            lines[found] = line
    else:
        lines.insert(start, line)
    return "\n".join(lines)


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
            keys = _header_keys(line)
            kept += _trailing_comments(cut)
            cut, ours = [], keys[: len(path)] == path
        (cut if ours else kept).append(line)
    return "\n".join(kept + _trailing_comments(cut))


def _header_keys(line: str) -> tuple[str, ...]:
    header = _HEADER.fullmatch(line)
    return tuple(key.strip().strip("\"'") for key in header["name"].split(".")) if header else ()


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


def _append_missing(found: dict[str, Any], setting: Setting) -> list[Any]:
    """Append the items that the list doesn't have, by `id` if they have one, and return them."""
    inner: Any = found
    for key in setting.path[:-1]:
        inner = inner.setdefault(key, {}) if isinstance(inner, dict) else None
    there = inner.setdefault(setting.path[-1], []) if isinstance(inner, dict) else None
    if not isinstance(there, list):
        raise _not_mergeable(f"{'.'.join(setting.path)} is not a list in it")
    known = [_identity(each) for each in there]
    new = [each for each in setting.value if _identity(each) not in known]
    there.extend(new)
    return new


def _identity(item: Any) -> Any:
    return item.get("id") if isinstance(item, dict) else item


def _reject_overrides(found: Any, piece: ConfigEntry) -> None:
    named = [".".join(path) for pattern in piece.overrides for path in _find_paths(found, pattern)]
    if named:
        raise NotMergeable(
            f"The client's file was not changed: {', '.join(named)} in it may switch its built-in tools on again.",
            advice="Remove that from the file, or use another file with --file.",
        )


def _find_paths(found: Any, pattern: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if not pattern:
        yield ()
    elif isinstance(found, dict):
        for key in found if pattern[0] == "*" else {pattern[0]} & found.keys():
            yield from ((key, *rest) for rest in _find_paths(found[key], pattern[1:]))


def _not_mergeable(why: str) -> NotMergeable:
    return NotMergeable(
        f"The client's file was not changed: {why}.", advice="Print the entry (without --write) and add it by hand."
    )
