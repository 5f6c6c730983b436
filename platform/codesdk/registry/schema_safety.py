"""Refuses JSON Schemas that fetch anything, recurse endlessly, or are too large to validate with. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jsonschema_rs

MAX_NODES = 10_000
"""Values in one schema. The largest of real tools have some hundreds."""
MAX_DEPTH = 64
"""Levels. A manifest file allows 40; this also limits schemas from other places."""
MAX_EXPANDED = 200_000
"""Values in a schema with every reference expanded: nested references grow exponentially."""
MAX_REFERENCES = 200
MAX_PATTERN = 1000
"""Characters of a regular expression."""
DRAFT = "https://json-schema.org/draft/2020-12/schema"
_BASES = ("$id", "$anchor", "$dynamicAnchor", "$dynamicRef", "$vocabulary", "$recursiveRef", "$recursiveAnchor", "id")
"""Keywords that name or move reference targets. Inside a manifest `#/…` is enough, and unambiguous."""
_DATA = ("const", "enum", "default", "examples")
"""Keywords whose values are data and contain no keywords."""
_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependentRequired")
"""Keywords whose keys are names instead of keywords."""

SchemaPath = tuple[str | int, ...]


class SchemaRefused(Exception):
    """The schema can't be used. `path` is the position of the error."""

    def __init__(self, message: str, path: SchemaPath = ()) -> None:
        super().__init__(message)
        self.path = path


def check_schema(schema: dict[str, Any]) -> int:
    """Check that a schema can be compiled and used. Returns its number of values with every reference expanded.

    Raises:
        SchemaRefused: at the first error.
    """
    references: dict[SchemaPath, SchemaPath] = {}
    paths: list[SchemaPath] = []
    data: set[SchemaPath] = set()
    for count, (path, value, is_data) in enumerate(_walk(schema), start=1):
        if count > MAX_NODES:
            raise SchemaRefused(f"The schema has more than {MAX_NODES} values.")
        if len(path) > MAX_DEPTH:
            raise SchemaRefused(f"The schema has more than {MAX_DEPTH} levels.", path[:MAX_DEPTH])
        paths.append(path)
        if is_data:
            data.add(path)
        if not is_data and _is_keyword(path):
            _check_keyword(path, value)
            if path[-1] == "$ref":
                references[path] = _target(schema, path, value)
                if len(references) > MAX_REFERENCES:
                    raise SchemaRefused(f"The schema has more than {MAX_REFERENCES} references.", path)
    for at, target in references.items():
        if target in data or (target and target[-1] in _NAMED and _is_keyword(target)):
            raise SchemaRefused("This `$ref` leads to something that is not a schema.", at)
    expanded = _check_expansion(references, paths)
    compile_validator(schema)
    return len(paths) + expanded


def compile_validator(schema: dict[str, Any]) -> jsonschema_rs.Draft202012Validator:
    """Compile a schema. Regular expressions run in linear time.

    Raises:
        SchemaRefused: it is not a valid 2020-12 schema.
    """
    try:
        return jsonschema_rs.Draft202012Validator(
            schema, pattern_options=jsonschema_rs.RegexOptions(), retriever=_refuse_fetch
        )
    except jsonschema_rs.ValidationError as error:
        raise SchemaRefused(f"This is not a valid JSON Schema: {error.message}.", tuple(error.instance_path)) from error
    except (ValueError, jsonschema_rs.ReferencingError) as error:
        raise SchemaRefused(f"This is not a valid JSON Schema: {str(error).splitlines()[0]}.") from error


def _refuse_fetch(uri: str) -> Any:
    raise ValueError(f"{uri[:100]} is not fetched")


def _walk(schema: Any) -> Iterator[tuple[SchemaPath, Any, bool]]:
    """Yield every value with its path, and whether it is only data. Iterative, so any depth works."""
    stack: list[tuple[SchemaPath, Any, bool]] = [((), schema, False)]
    while stack:
        path, value, is_data = stack.pop()
        yield path, value, is_data
        if isinstance(value, dict):
            named = bool(path) and path[-1] in _NAMED and _is_keyword(path)
            stack += [((*path, key), below, is_data or (key in _DATA and not named)) for key, below in value.items()]
        elif isinstance(value, list):
            stack += [((*path, number), below, is_data) for number, below in enumerate(value)]


def _is_keyword(path: SchemaPath) -> bool:
    """Return whether the last step is a keyword, and not the name of a property or definition."""
    return bool(path) and isinstance(path[-1], str) and not _is_name(path)


def _is_name(path: SchemaPath) -> bool:
    depth = 0  # names and keywords alternate below `properties`: {properties: {properties: {type: …}}}
    for step in reversed(path[:-1]):
        if step not in _NAMED:
            break
        depth += 1
    return depth % 2 == 1


def _check_keyword(path: SchemaPath, value: Any) -> None:
    keyword = path[-1]
    if keyword in _BASES:
        raise SchemaRefused(
            f"`{keyword}` is not allowed in a tool's schema; refer to other parts of it by `#/…`.", path
        )
    if keyword == "$schema" and value != DRAFT:
        raise SchemaRefused(f"`$schema` can only be {DRAFT}, which it is anyway.", path)
    patterns = (
        [value]
        if keyword == "pattern"
        else list(value)
        if keyword == "patternProperties" and isinstance(value, dict)
        else []
    )
    for pattern in patterns:
        if isinstance(pattern, str):
            _check_pattern(pattern, path)


def _check_pattern(pattern: str, path: SchemaPath) -> None:
    if len(pattern) > MAX_PATTERN:
        raise SchemaRefused(f"This regular expression has more than {MAX_PATTERN} characters.", path)
    try:
        jsonschema_rs.Draft202012Validator({"pattern": pattern}, pattern_options=jsonschema_rs.RegexOptions())
    except ValueError as error:
        why = str(error).splitlines()[0]
        raise SchemaRefused(
            f"This regular expression cannot be used (RE2 syntax, no look-around): {why}.", path
        ) from error


def _target(schema: dict[str, Any], path: SchemaPath, value: Any) -> SchemaPath:
    if not isinstance(value, str):
        raise SchemaRefused("`$ref` must be text.", path)
    if not value.startswith("#"):
        raise SchemaRefused(f"`$ref: {value[:100]}` leaves the schema; nothing is fetched.", path)
    if value != "#" and not value.startswith("#/"):
        raise SchemaRefused(f"`$ref: {value[:100]}` must be `#/…`.", path)
    node: Any = schema
    found: list[str | int] = []
    for step in value.removeprefix("#").split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(node, dict) and name in node:
            found.append(name)
            node = node[name]
        elif isinstance(node, list) and name.isdigit() and int(name) < len(node):
            found.append(int(name))
            node = node[int(name)]
        else:
            raise SchemaRefused(f"`$ref: {value[:100]}` leads to nothing in this schema.", path)
    return tuple(found)


def _check_expansion(references: dict[SchemaPath, SchemaPath], paths: list[SchemaPath]) -> int:
    """Refuse references that are recursive, and those whose expansion is too large. Returns what they add."""
    if not references:
        return 0
    beneath = {target: [at for at in references if at[: len(target)] == target] for target in set(references.values())}
    own = {target: sum(path[: len(target)] == target for path in paths) for target in beneath}
    whole: dict[SchemaPath, int] = {}
    open_: set[SchemaPath] = set()

    def expand(target: SchemaPath, at: SchemaPath) -> int:
        if target in open_:
            raise SchemaRefused("This `$ref` leads to itself; recursive schemas are not supported.", at)
        if target not in whole:
            open_.add(target)
            whole[target] = own[target] + sum(expand(references[one], one) for one in beneath[target])
            open_.remove(target)
        return whole[target]

    total = 0
    for at, target in references.items():
        total += expand(target, at)
        if total > MAX_EXPANDED:
            raise SchemaRefused("This schema is too large when its references are expanded.", at)
    return total
