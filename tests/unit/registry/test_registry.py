"""Manifests, lookups, and checks of inputs and outputs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from codesdk.domain.decisions import SandboxBounds
from codesdk.registry import InvalidInput, InvalidOutput, ManifestInvalid, Registry, UnknownTool, manifest_schema

SHIPPED = Path(__file__).parents[3] / "tool-registry"
MANIFEST = """name: {name}
version: 1.0.0
title: A tool
description: Does a thing.
classification: read-only
runs: {runs}
input_schema:
  type: object
  additionalProperties: false
  properties:
    path: {{type: string, maxLength: 5}}
    count: {{type: integer}}
"""


@pytest.fixture
def load(tmp_path):
    def write(*texts):
        for number, text in enumerate(texts):
            (tmp_path / f"tool{number}.yaml").write_text(text, encoding="utf-8")
        return Registry.load(tmp_path)

    return write


def manifest(name="a.b", runs="{builtin: a.b}", more=""):
    return MANIFEST.format(name=name, runs=runs) + more


@pytest.fixture(scope="module")
def shipped():
    return Registry.load(SHIPPED)


def test_the_shipped_tools_load_and_only_those_that_run_commands_are_disabled(shipped):
    assert [tool.name for tool in shipped.tools()] == sorted(shipped.names())
    assert [tool.name for tool in shipped.tools() if not tool.enabled] == [
        "process.list",
        "process.read",
        "process.signal",
        "process.start",
        "workspace.exec",
    ]
    assert {tool.name for tool in shipped.tools() if tool.serial} == {
        "patch.apply",
        "process.start",
        "workspace.delete",
        "workspace.edit",
        "workspace.exec",
        "workspace.move",
        "workspace.write",
    }
    assert all(tool.examples and tool.output_schema for tool in shipped.tools())


def test_the_shipped_schema_is_the_one_of_the_models():
    assert json.loads((SHIPPED / "manifest.schema.json").read_text()) == manifest_schema()


def test_a_tool_is_found_by_dotted_and_by_wire_name(shipped):
    assert shipped.resolve("workspace.read") is shipped.resolve("workspace_read")
    assert shipped.resolve("workspace.read").wire_name == "workspace_read"


def test_an_unknown_name_gets_the_nearest(shipped):
    with pytest.raises(UnknownTool, match=r"Did you mean `workspace.read`\?") as caught:
        shipped.resolve("workspace.raed")
    assert caught.value.status == 404


@pytest.mark.parametrize(
    ("tool", "given", "pointer", "part"),
    [
        ("workspace.read", {}, "", "`path` to be there"),
        ("workspace.read", {"path": 5}, "/path", "a value of type string"),
        ("workspace.read", {"path": ""}, "/path", "at least 1 characters"),
        ("workspace.read", {"path": "x" * 5000}, "/path", "at most 4096 characters"),
        ("workspace.read", {"path": "a", "ofset": 1}, "", "`offset` instead of `ofset`"),
        ("workspace.read", {"path": "a", "offset": 0}, "/offset", "at least 1"),
        ("workspace.exec", {}, "", "exactly one of `command`, `argv`"),
        ("workspace.exec", {"command": "ls", "argv": ["ls"]}, "", "exactly one of `command`, `argv`"),
        ("workspace.exec", {"argv": ["ls", 1]}, "/argv/1", "a value of type string"),
        ("workspace.exec", {"argv": []}, "/argv", "at least 1 items"),
    ],
)
def test_a_wrong_input_is_refused_with_place_and_expectation(tool, given, pointer, part, shipped):
    with pytest.raises(InvalidInput) as caught:
        shipped.resolve(tool).check_input(given)
    assert caught.value.pointer == pointer
    assert part in caught.value.expected


def test_a_refusal_never_repeats_the_value(shipped):
    with pytest.raises(InvalidInput) as caught:
        shipped.resolve("workspace.read").check_input({"path": ["hunter2"]})
    assert "hunter2" not in str(caught.value)


def test_an_output_is_checked_against_its_schema(shipped):
    tool = shipped.resolve("workspace.write")
    tool.check_output({"path": "a", "bytes": 1, "created": True, "sha256": "sha256:00"})
    with pytest.raises(InvalidOutput, match="`sha256` to be there"):
        tool.check_output({"path": "a", "bytes": 1, "created": True})


def test_wire_names_that_collide_are_refused_at_load(load):
    with pytest.raises(
        ManifestInvalid, match=r"tool1.yaml:1:1: The name `a_b_c` that MCP clients see is already used by `a.b.c`"
    ):
        load(manifest("a.b.c"), manifest("a.b_c"))


@pytest.mark.parametrize(
    ("text", "place", "part"),
    [
        (manifest(more="titel: x\n"), (13, 1), "`titel` is not a known key"),
        (manifest("nodots"), (1, 1), "lower case words joined by dots"),
        (manifest(runs="{argv: [{arg: /path}]}"), (6, 1), "cannot come from the input"),
        (manifest(more="examples: [{input: {}}, {input: {path: toolong}}]\n"), (13, 25), "at most 5 characters"),
        (manifest(more="examples: [{input: {}}, {input: {other: 1}}]\n"), (13, 25), "is invalid"),
        (
            manifest().replace("additionalProperties: false", "additionalProperties: true"),
            (7, 1),
            "must refuse unknown keys",
        ),
        (manifest().replace("type: object", "type: array"), (7, 1), "must describe an object"),
        (manifest().replace("maxLength: 5", "maxLength: five"), (11, 26), "not a valid JSON Schema"),
        (manifest().replace("maxLength: 5", "$ref: 'https://example.com/x'"), (11, 26), "leaves the schema"),
        (manifest().replace("maxLength: 5", "pattern: '(a+'"), (11, 26), "regular expression cannot be used"),
        (manifest().replace("version: 1.0.0", "version: 1.0"), (2, 1), "version"),
        (manifest(more="examples: &x []\n"), (13, 11), "Anchors"),
    ],
)
def test_a_wrong_manifest_is_refused_with_its_place(text, place, part, load):
    with pytest.raises(ManifestInvalid) as caught:
        load(text)
    assert ((caught.value.line, caught.value.column), part in caught.value.problem) == (place, True), caught.value


def test_an_argv_template_takes_whole_words_and_no_options(load):
    tool = load(manifest(runs="{argv: [wc, -l, {arg: /count, flag: --max}, {arg: /path}]}")).resolve("a.b")
    assert tool.argv({"path": "a b", "count": 3}) == ("wc", "-l", "--max", "3", "a b")
    assert tool.argv({}) == ("wc", "-l")
    for refuse in (tool.argv, tool.check_input):
        with pytest.raises(InvalidInput, match="does not begin with a dash") as refused:
            refuse({"path": "--x"})
        assert refused.value.pointer == "/path"
    with pytest.raises(InvalidInput, match="text without NUL"):
        tool.check_input({"path": "a\0b"})


def test_a_pattern_that_explodes_elsewhere_is_answered_at_once(load):
    text = manifest().replace("maxLength: 5", "pattern: '^(a+)+$'")
    with pytest.raises(InvalidInput, match="text that matches"):
        load(text).resolve("a.b").check_input({"path": "a" * 5000 + "!"})


def test_the_schema_hash_is_of_the_input_schema_alone(load, tmp_path):
    first = load(manifest()).resolve("a.b").schema_hash
    (tmp_path / "tool0.yaml").write_text(manifest().replace("Does a thing", "Does another"))
    second = Registry.load(tmp_path).resolve("a.b").schema_hash
    (tmp_path / "tool0.yaml").write_text(manifest().replace("maxLength: 5", "maxLength: 6"))
    third = Registry.load(tmp_path).resolve("a.b").schema_hash
    assert first == second != third


PROFILES = {"small": SandboxBounds(memory_bytes=64 << 20, pids=100, egress=()), "wide": SandboxBounds(pids=500)}


def test_a_tool_that_names_a_profile_is_held_to_its_bounds_and_its_own_where_they_are_tighter(tmp_path):
    more = "profile: small\nsandbox: {memory_bytes: 134217728, pids: 90}\n"
    (tmp_path / "a.yaml").write_text(manifest(more=more))
    tool = Registry.load(tmp_path, PROFILES).resolve("a.b")
    assert tool.profile == "small"
    assert tool.sandbox == SandboxBounds(memory_bytes=64 << 20, pids=90, egress=())
    assert Registry.load(tmp_path).resolve("a.b").sandbox == SandboxBounds(memory_bytes=128 << 20, pids=90)


def test_a_profile_that_is_not_there_is_refused_at_load_with_place_and_nearest_name(tmp_path):
    (tmp_path / "a.yaml").write_text(manifest(more="profile: smal\n"))
    with pytest.raises(ManifestInvalid, match=r"There is no profile `smal`\. Did you mean `small`") as told:
        Registry.load(tmp_path, PROFILES)
    assert (told.value.line, told.value.column) == (13, 1)
