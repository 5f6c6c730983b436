"""Plain words of a document: numbers, and names that look like numbers."""

from __future__ import annotations

import pytest

from codesdk.documents.document import parse_document


@pytest.mark.parametrize("name", ["e1", "E5", "+e1", "-E+7", ".e1", "1e999", "-1e999", "1e", "1.e"])
def test_a_name_that_looks_like_a_number_is_a_name(name):
    assert parse_document(f"name: {name}\n").data == {"name": name}


@pytest.mark.parametrize(("written", "number"), [("1e3", 1000.0), (".5", 0.5), ("-.5e1", -5.0), ("0.25", 0.25)])
def test_a_number_is_one(written, number):
    assert parse_document(f"size: {written}\n").data == {"size": number}
