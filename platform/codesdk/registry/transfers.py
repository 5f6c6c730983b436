"""Inputs with which HTTP requests move bytes: built-in tools take them, but no model is offered them. Pure.

The bytes are not a part of the input. A download asks for `raw` bytes, which the call keeps as an artifact; an upload names
its content by hash. What else a manifest says of an input, such as a pattern for paths, holds for these as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_HASH = {"type": "string", "pattern": "^sha256:[0-9a-f]{64}$"}
_COUNT = {"type": "integer", "minimum": 0, "maximum": 1 << 53}
_RAW = {
    "type": "object",
    "additionalProperties": False,
    "properties": {"offset": _COUNT, "length": _COUNT, "last": _COUNT, "tree": {"const": True}},
}
_UPLOAD = {
    "type": "object",
    "additionalProperties": False,
    "required": ["sha256", "bytes"],
    "properties": {"sha256": _HASH, "bytes": _COUNT, "tree": {"const": True}},
}
_IF_SHA256 = {"type": "string", "pattern": "^(absent|sha256:[0-9a-f]{64})$"}
_RAW_RESULT = {
    "type": "object",
    "additionalProperties": False,
    "required": ["offset", "bytes", "size"],
    "properties": {
        "offset": _COUNT,
        "bytes": _COUNT,
        "size": _COUNT,
        "entries": _COUNT,
        "left_out": _COUNT,
        "left_out_paths": {"type": "array", "items": {"type": "string"}},
    },
}
_RESULTS = {"workspace.read": {"raw": _RAW_RESULT}, "workspace.write": {"entries": _COUNT}}
_INPUTS: dict[str, dict[str, Any]] = {
    "workspace.read": {"raw": _RAW},
    "workspace.write": {"upload": _UPLOAD, "if_sha256": _IF_SHA256},
}
_REPLACED = {"workspace.write": {"content": "upload"}}
"""Required arguments in whose place another one may be."""


def input_schema_of_transfers(builtin: str, schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """The schema of a built-in's input with which HTTP requests move bytes; None if it moves none."""
    added = _INPUTS.get(builtin)
    if added is None:
        return None
    wide = {**schema, "properties": {**schema.get("properties", {}), **added}}
    replaced = _REPLACED.get(builtin, {})
    wide["required"] = [name for name in schema.get("required", ()) if name not in replaced]
    choices = [
        {"oneOf": [{"required": [name]}, {"required": [other]}]}
        for name, other in replaced.items()
        if name in schema.get("required", ())
    ]
    return {**wide, "allOf": [*schema.get("allOf", ()), *choices]} if choices else wide


def output_schema_of_transfers(builtin: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a built-in's structured result, with what is told of raw bytes and of trees."""
    added = _RESULTS.get(builtin, {})
    return {**schema, "properties": {**schema.get("properties", {}), **added}}
