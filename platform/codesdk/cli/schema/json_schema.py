"""Generates one JSON Schema of all published models. Reproducible byte for byte."""

from __future__ import annotations

import json
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, models_json_schema

from codesdk.cli.schema.published_models import PUBLISHED, Model, closure, field_docs
from codesdk.domain.events import CONTRACT_VERSION, SCHEMA_VERSION, Event
from codesdk.domain.payloads import PAYLOADS

FILE_NAME = "codesdk.schema.json"
DESCRIPTION = (
    "Events as they are stored and sent, the records of the API, and what runtime adapters declare. The document itself "
    "describes one event; every other shape is under $defs. Ignore keys and event types that are not here: later "
    "versions add some without raising schema_version."
)


class _Untitled(GenerateJsonSchema):
    """Omits the titles that pydantic derives from field names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        del schema
        return False


def build_schema() -> dict[str, Any]:
    """Return the whole schema, draft 2020-12."""
    models = closure(PUBLISHED)
    named, schema = models_json_schema([(model, "validation") for model in models], schema_generator=_Untitled)
    definitions = schema["$defs"]
    for model in models:
        _describe(definitions[_name(named[model, "validation"])], model)
    event = definitions[_name(named[Event, "validation"])]
    event["allOf"] = [
        _payload_condition(kind.value, named[payload, "validation"]) for kind, payload in PAYLOADS.items()
    ]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:codesdk:schema:{SCHEMA_VERSION}",
        "title": "CodeSDK",
        "description": DESCRIPTION,
        "x-contract-version": CONTRACT_VERSION,
        "$ref": named[Event, "validation"]["$ref"],
        "$defs": {name: _allow_unknown_keys(definitions[name]) for name in sorted(definitions)},
    }


def schema_text() -> str:
    """Return the schema file's content."""
    return json.dumps(build_schema(), indent=1, ensure_ascii=False) + "\n"


def _name(reference: dict[str, Any]) -> str:
    return str(reference["$ref"]).rpartition("/")[2]


def _describe(definition: dict[str, Any], model: Model) -> None:
    for name, text in field_docs(model).items():
        if name in definition.get("properties", {}):
            definition["properties"][name]["description"] = " ".join(text.split())


def _payload_condition(kind: str, payload: dict[str, Any]) -> dict[str, Any]:
    return {"if": {"properties": {"type": {"const": kind}}}, "then": {"properties": {"payload": payload}}}


def _allow_unknown_keys(schema: Any) -> Any:
    """Convert the schema for readers: allow unknown keys and remove null.

    Later versions may add keys; null is never sent. Our own models forbid extra keys, so that a misspelt key fails
    when it is written.
    """
    if isinstance(schema, list):
        return [_allow_unknown_keys(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {
        key: _allow_unknown_keys(value)
        for key, value in schema.items()
        if (key, value) != ("additionalProperties", False)
    }
    choices = kept.get("anyOf")
    if choices and {"type": "null"} in choices and "default" in kept and kept["default"] is None:
        rest = [choice for choice in choices if choice != {"type": "null"}]
        del kept["anyOf"], kept["default"]
        kept = {**(rest[0] if len(rest) == 1 else {"anyOf": rest}), **kept}
    return kept
