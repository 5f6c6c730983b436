"""The tools that rules can name, and their arguments."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

from codesdk.domain.decisions import Classification
from codesdk.policy.matching.argument_conditions import glob_matcher
from codesdk.policy.schema.conditions import NUMBER, TEXT

_UNDECIDABLE = (
    "$ref",
    "$dynamicRef",
    "patternProperties",
    "anyOf",
    "oneOf",
    "allOf",
    "if",
    "then",
    "else",
    "prefixItems",
)
_SCALARS = ("string", "number", "integer", "boolean", "null")
_WILDCARDS = "*?["


class ToolSchema(Protocol):
    """What the checks of rules need to know about a tool. The registry's `Tool` implements it."""

    @property
    def name(self) -> str:
        """The dotted name."""
        ...

    @property
    def classification(self) -> Classification:
        """The classification in the manifest."""
        ...

    @property
    def input_schema(self) -> dict[str, Any]:
        """The JSON Schema of the input."""
        ...


class ToolCatalog:
    """The tools that rules can name."""

    def __init__(self, known: Collection[str]) -> None:
        """`known`: tools by name; of names alone, only the existence is checked."""
        self.names = frozenset(known)
        self.schemas: Mapping[str, ToolSchema] = dict(known) if isinstance(known, Mapping) else {}
        self.servers = frozenset(name.partition(".")[0] for name in self.names)
        self._found: dict[tuple[str, ...], tuple[ToolSchema, ...]] = {}

    def unknown_names(self, names: Iterable[str]) -> list[int]:
        """Return the positions of the names that no tool has, and of the patterns that match none."""
        return [at for at, name in enumerate(names) if not _is_known(name, self.names)]

    def unknown_servers(self, names: Iterable[str]) -> list[int]:
        """Return the positions of the names and patterns that match no server."""
        return [at for at, name in enumerate(names) if not _is_known(name, self.servers)]

    def matching(self, names: tuple[str, ...] | None) -> tuple[ToolSchema, ...] | None:
        """Return the tools that these names and patterns match; None if they may match a tool that isn't known."""
        if names is None:
            return tuple(self.schemas.values()) or None
        if names not in self._found:
            exact = [name for name in names if not is_pattern(name)]
            if len(exact) == len(names):
                found = [self.schemas[name] for name in dict.fromkeys(exact) if name in self.schemas]
            else:
                fits = glob_matcher(names)
                found = [tool for name, tool in self.schemas.items() if fits(name)]
            known = all(name in self.schemas for name in exact)
            self._found[names] = tuple(found) if known else ()
        return self._found[names] or None


def is_pattern(name: str) -> bool:
    """Return whether a name of a tool or server has a wildcard."""
    return any(mark in name for mark in _WILDCARDS)


def _is_known(name: str, known: Collection[str]) -> bool:
    return name in known or (is_pattern(name) and any(map(glob_matcher((name,)), known)))


def types_at(schema: Mapping[str, Any], path: Sequence[str]) -> frozenset[str] | None:
    """Return the JSON types possible at `path`; empty if nothing can be there, None if anything can."""
    node: Any = schema
    for step in path:
        if not isinstance(node, Mapping):
            return None
        known = node.get("properties", {})
        if step in known:
            node = known[step]
        elif "items" in node and step.isdigit():
            node = node["items"]
        else:
            closed = node.get("additionalProperties") is False and "patternProperties" not in node
            return frozenset() if closed or node.get("type") in _SCALARS else None
    return _types(node)


def argument_names(schemas: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the top-level property names of these schemas."""
    return sorted({name for schema in schemas for name in schema.get("properties", {})})


def json_type(value: object) -> str:
    """Return the JSON type of a scalar."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    return NUMBER if isinstance(value, int | float) else TEXT


def _types(node: Any) -> frozenset[str] | None:
    if not isinstance(node, Mapping) or any(key in node for key in _UNDECIDABLE):
        return None
    if "enum" in node or "const" in node:
        values = node.get("enum", [node.get("const")])
        if any(isinstance(value, list | dict) for value in values):
            return None
        return frozenset(json_type(value) for value in values)
    if "type" not in node:
        return None
    kinds = [node["type"]] if isinstance(node["type"], str) else node["type"]
    return frozenset(NUMBER if kind == "integer" else kind for kind in kinds)
