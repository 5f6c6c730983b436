"""Arguments as clients send them: `null` for "not given", numbers as strings, and names that mean another. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from codesdk.documents import nearest

_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,14})", re.ASCII)
_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,14})(\.[0-9]{1,15})?", re.ASCII)
_MEANINGS = {
    **dict.fromkeys(("cmd", "script", "commandline", "shellcommand", "bash"), ("command", "argv")),
    **dict.fromkeys(("args", "arguments", "words"), ("argv", "command")),
    **dict.fromkeys(("file", "filename", "filepath", "absolutepath", "targetfile", "uri", "name"), ("path",)),
    **dict.fromkeys(("dir", "directory", "folder", "workdir", "workingdirectory", "root"), ("cwd", "path")),
    **dict.fromkeys(("from", "source", "src", "oldpath"), ("path",)),
    **dict.fromkeys(("to", "dest", "destination", "newpath"), ("target",)),
    **dict.fromkeys(("text", "contents", "data", "body", "filetext"), ("content", "body", "stdin")),
    **dict.fromkeys(("query", "regex", "regexp", "searchterm"), ("pattern",)),
    **dict.fromkeys(("search", "find"), ("pattern", "old_text")),
    **dict.fromkeys(("oldstring", "oldstr"), ("old_text",)),
    **dict.fromkeys(("newstring", "newstr", "replace", "replacement"), ("new_text",)),
    **dict.fromkeys(("replaceall", "multiple"), ("replace_all",)),
    **dict.fromkeys(("include", "filepattern", "includepattern", "files"), ("glob",)),
    **dict.fromkeys(("startline", "line", "fromline", "start", "skip", "cursor"), ("offset",)),
    **dict.fromkeys(
        ("lines", "numlines", "linecount", "count", "headlimit", "max", "maxlines"), ("limit", "max_results")
    ),
    **dict.fromkeys(("timeout", "timeoutms", "timeoutseconds"), ("timeout_s",)),
    **dict.fromkeys(("recurse", "force", "all"), ("recursive",)),
    **dict.fromkeys(("overwrite",), ("replace",)),
    **dict.fromkeys(("caseinsensitive", "caseignore", "insensitive"), ("ignore_case",)),
    **dict.fromkeys(("diff", "changes", "patchtext", "unifieddiff", "input"), ("patch",)),
    **dict.fromkeys(("includehidden", "dotfiles"), ("hidden",)),
    **dict.fromkeys(("pid", "id", "processid"), ("process",)),
}
"""Names that other agents' tools have for an argument, in lower case and without `_` and `-`, and ours for it."""


def normalize(given: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments without optional ones that are null, and with numbers where the schema has numbers.

    What the schema accepts as it is stays as it is: a null, or a string of digits.
    """
    properties, required = schema.get("properties"), schema.get("required", ())
    if not isinstance(properties, Mapping):
        return dict(given)
    return {
        name: _value(value, properties.get(name))
        for name, value in given.items()
        if value is not None or name in required or _accepts(properties.get(name), "null")
    }


def meant(name: str, known: Iterable[str]) -> str | None:
    """The known argument that a name means, if any is likely."""
    names = list(known)
    plain = name.lower().replace("_", "").replace("-", "")
    return next((one for one in _MEANINGS.get(plain, ()) if one in names), None) or nearest(name, names)


def _value(value: Any, schema: Any) -> Any:
    if not isinstance(schema, Mapping):
        return value
    if isinstance(value, str) and not _accepts(schema, "string"):
        if _accepts(schema, "integer") and _INTEGER.fullmatch(value):
            return int(value)
        if _accepts(schema, "number") and _NUMBER.fullmatch(value):
            return float(value) if "." in value else int(value)
    if isinstance(value, Mapping):
        return normalize(value, schema)
    if isinstance(value, list) and isinstance(schema.get("items"), Mapping):
        return [_value(item, schema["items"]) for item in value]
    return value


def _accepts(schema: Any, kind: str) -> bool:
    """Whether a schema says that it takes values of a type; True where it doesn't say what it takes."""
    types = schema.get("type") if isinstance(schema, Mapping) else None
    if isinstance(types, str):
        return types == kind
    if isinstance(types, list):
        return kind in types
    options = schema.get("enum") if isinstance(schema, Mapping) else None
    if isinstance(options, list):
        return any(_kind(option) == kind for option in options)
    return True


def _kind(option: Any) -> str:
    return {type(None): "null", str: "string", bool: "boolean", int: "integer", float: "number"}.get(type(option), "")
