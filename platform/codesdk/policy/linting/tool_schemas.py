"""What a tool's input schema says of one argument, for lint."""

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
    """What lint knows of a tool; the registry's `Tool` is one."""

    @property
    def name(self) -> str:
        """Dotted name."""
        ...

    @property
    def classification(self) -> Classification:
        """From the manifest."""
        ...

    @property
    def input_schema(self) -> dict[str, Any]:
        """JSON Schema of its input."""
        ...


def types_at(schema: Mapping[str, Any], path: Sequence[str]) -> frozenset[str] | None:
    """The JSON types that a value at `path` may have, none where it cannot be there; None where it may be anything."""
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
    """The names at the top of these schemas."""
    return sorted({name for schema in schemas for name in schema.get("properties", {})})


def json_type(value: object) -> str:
    """The JSON type of a scalar."""
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
