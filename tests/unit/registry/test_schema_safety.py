"""Hostile schemas: refused at load, with their place, in little time, without fetching anything."""

from __future__ import annotations

import json
import socket
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codesdk.registry import ManifestInvalid, Registry
from codesdk.registry.schema_safety import SchemaRefused, check_schema
from codesdk.registry.schemas import CompiledSchema

HEAD = """name: a.b
version: 1.0.0
title: A tool
description: Does a thing.
classification: read-only
runs: {argv: [wc]}
input_schema:
  type: object
  additionalProperties: false
  properties:
    path: SCHEMA
"""
HALVES = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(30)}


def nested(levels):
    schema = {"type": "string"}
    for _ in range(levels):
        schema = {"items": schema}
    return schema


@pytest.mark.parametrize(
    ("schema", "path", "words"),
    [
        ({"$ref": "#"}, ("$ref",), "leads to itself"),
        ({"properties": {"a": {"$ref": "#/properties/a"}}}, ("properties", "a", "$ref"), "leads to itself"),
        ({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"items": {"$ref": "#/$defs/a"}}}}, None, "leads to itself"),
        ({"$defs": {**HALVES, "d30": {"type": "string"}}, "$ref": "#/$defs/d0"}, None, "too large when its references"),
        ({"$ref": "http://127.0.0.1:9/x.json"}, ("$ref",), "nothing is fetched"),
        ({"$ref": "file:///etc/passwd"}, ("$ref",), "nothing is fetched"),
        ({"$ref": "other.json#/a"}, ("$ref",), "nothing is fetched"),
        ({"$ref": "#/$defs/none"}, ("$ref",), "leads to nothing"),
        ({"$ref": "#name"}, ("$ref",), "must be"),
        ({"$ref": 5}, ("$ref",), "must be text"),
        ({"enum": [{"$ref": "http://127.0.0.1:9/"}], "$ref": "#/enum/0"}, ("$ref",), "not a schema"),
        ({"properties": {"$ref": {}}, "allOf": [{"$ref": "#/properties"}]}, ("allOf", 0, "$ref"), "not a schema"),
        ({"$id": "http://127.0.0.1:9/x"}, ("$id",), "is not allowed"),
        ({"$defs": {"a": {"$anchor": "x"}}}, ("$defs", "a", "$anchor"), "is not allowed"),
        ({"$dynamicRef": "#x"}, ("$dynamicRef",), "is not allowed"),
        ({"$schema": "http://127.0.0.1:9/meta"}, ("$schema",), "can only be"),
        ({"properties": {"a": {"pattern": "(a{1000}){1000}{1000}"}}}, ("properties", "a", "pattern"), "cannot be used"),
        ({"pattern": "(?=a)b"}, ("pattern",), "cannot be used"),
        ({"pattern": "a" * 1001}, ("pattern",), "more than 1000 characters"),
        ({"patternProperties": {"(a": {}}}, ("patternProperties",), "cannot be used"),
        (nested(100), None, "more than 64 levels"),
        (nested(100_000), None, "more than 64 levels"),
        ({"enum": list(range(20_000))}, None, "more than 10000 values"),
        ({"allOf": [{"$ref": "#/$defs/a"}] * 201, "$defs": {"a": {}}}, None, "more than 200 references"),
        ({"type": "strin"}, ("type",), "not a valid JSON Schema"),
        ({"properties": {"a": {"minLength": -1}}}, ("properties", "a", "minLength"), "not a valid JSON Schema"),
    ],
)
def test_a_hostile_schema_is_refused_at_its_place(schema, path, words):
    began = time.thread_time()
    with pytest.raises(SchemaRefused, match=words) as refused:
        check_schema(schema)
    assert path is None or refused.value.path == path
    assert time.thread_time() - began < 5


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"$ref": {"type": "string"}, "$id": {}, "pattern": {"pattern": "^a$"}}},
        {"properties": {"properties": {"properties": {"$id": {"type": "string"}}}}},
        {
            "enum": [{"$ref": "http://x/"}],
            "default": {"$id": "x"},
            "const": {"pattern": "("},
            "examples": [{"$id": "x"}],
        },
        {"$defs": {"a": {"type": "string"}}, "properties": {"x": {"$ref": "#/$defs/a"}, "y": {"$ref": "#/$defs/a"}}},
        {"$defs": {"a/b": {"$ref": "#/$defs/c~0d"}, "c~d": {}}, "$ref": "#/$defs/a~1b"},
        {"$schema": "https://json-schema.org/draft/2020-12/schema"},
        {"allOf": [{"$ref": "#/allOf/1"}, {"type": "object"}]},
    ],
)
def test_what_only_looks_hostile_passes(schema):
    check_schema(schema)
    CompiledSchema(schema)


def test_the_file_says_where_and_nothing_is_fetched(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        url = f"http://127.0.0.1:{server.getsockname()[1]}/x.json"
        (tmp_path / "a.yaml").write_text(HEAD.replace("SCHEMA", json.dumps({"$ref": url})))
        with pytest.raises(ManifestInvalid, match="nothing is fetched") as refused:
            Registry.load(tmp_path)
        assert (refused.value.line, refused.value.column) == (11, 12)
        with pytest.raises(TimeoutError):
            server.accept()


def test_the_output_schema_is_held_to_the_same(tmp_path):
    text = HEAD.replace("SCHEMA", "{type: string}") + "output_schema:\n  type: object\n  $ref: '#'\n"
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(ManifestInvalid, match="leads to itself") as refused:
        Registry.load(tmp_path)
    assert refused.value.line == 14


keywords = st.sampled_from(
    [
        "$ref",
        "$id",
        "pattern",
        "properties",
        "$defs",
        "items",
        "allOf",
        "type",
        "enum",
        "const",
        "a",
        "patternProperties",
    ]
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["#", "#/a", "#/$defs/a", "(", "string", "^a+$", "x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keywords, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(keywords, values, max_size=4), values)
def test_a_schema_is_refused_or_checks_anything(schema, value):
    try:
        compiled = CompiledSchema(schema)
    except SchemaRefused as refused:
        assert str(refused)  # noqa: PT017 (one of two right answers)
    else:
        mismatch = compiled.mismatch(value)
        assert mismatch is None or mismatch.expected


ALTERNATIVES = [{"type": "object", "properties": {"k": {"const": number}}, "required": ["k"]} for number in range(300)]


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        ({"items": {"oneOf": ALTERNATIVES}}, [{"k": "x"}] * 300_000, "fewer values"),
        ({"items": {"type": "string"}}, [1] * 500_000, "a value of type string"),
        ({"items": {"oneOf": ALTERNATIVES}}, [{"k": "x"}] * 4000, "exactly one of `k`"),
        ({"oneOf": ALTERNATIVES}, {"k": "x" * 4_000_000}, "too large to say where"),
        ({"maxLength": 4_000_000}, "x" * 4_000_001, "at most 4000000 characters"),
    ],
)
def test_a_large_value_is_checked_and_explained_in_little_time(schema, value, expected):
    compiled = CompiledSchema(schema)
    began = time.thread_time()
    assert expected in compiled.mismatch(value).expected
    assert time.thread_time() - began < 10


def test_the_size_of_a_schema_counts_what_its_references_expand_to():
    halves = {**{f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(8)}, "d8": {"type": "string"}}
    assert check_schema({"$defs": halves, "$ref": "#/$defs/d0"}) > 1000
    assert check_schema({"type": "string"}) == 2
