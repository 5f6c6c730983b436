"""libyaml reads a document as ruamel.yaml does; what it refuses, ruamel.yaml decides about."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codesdk.documents.document import DocumentUnreadable, _parse_with_ruamel, parse_document

REPOSITORY = Path(__file__).resolve().parents[3]
PARTS = [
    "a",
    "b: ",
    "c:",
    "- ",
    "-",
    "[",
    "]",
    "{",
    "}",
    ",",
    "'",
    '"',
    "#",
    " # x",
    "|\n  x\n",
    ">\n  y\n",
    "\n",
    "\n  ",
]
PARTS += [
    "\n    ",
    "\t",
    "0",
    "1.5",
    "true",
    " ",
    "?",
    "%",
    "@",
    "`",
    ":",
    "\\n",
    "\\x41",
    "é",
    "~",
    "\u2028",
    "\x85",
    ".",
]


def outcome(parse, text):
    try:
        document = parse(text)
    except DocumentUnreadable as error:
        return error.place, error.message
    return document.data, document.places


@given(st.lists(st.sampled_from(PARTS), max_size=14).map("".join))
def test_any_text_is_read_as_ruamel_reads_it(text):
    assert outcome(parse_document, f"z: {text}") == outcome(_parse_with_ruamel, f"z: {text}")


def test_so_are_all_shipped_files():
    files = sorted(
        path for top in ("tool-registry", "policies", "sandbox-images") for path in (REPOSITORY / top).rglob("*.yaml")
    )
    assert len(files) > 15
    for path in files:
        text = path.read_text()
        assert outcome(parse_document, text) == outcome(_parse_with_ruamel, text), path


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("a: [:0]\n", id="a colon that YAML 1.1 does not allow there"),
        pytest.param("a: \x85b: 1\n", id="a line break of YAML 1.1"),
        pytest.param("a: b\tc\n", id="a tab in a value"),
    ],
)
def test_what_the_versions_of_yaml_read_differently_is_yaml_1_2(text):
    assert outcome(parse_document, text) == outcome(_parse_with_ruamel, text)


def test_half_a_character_is_an_error_with_a_place():
    with pytest.raises(DocumentUnreadable, match="This is not YAML"):
        parse_document("a: \ud800\n")
