"""Looks up arguments in the input schemas of tools, for lint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from codesdk.domain.decisions import Classification

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
TEXT = "string"
NUMBER = "number"


class ToolSchema(Protocol):
    """What lint needs to know about a tool. The registry's `Tool` implements it."""

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
