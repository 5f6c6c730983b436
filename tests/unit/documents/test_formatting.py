"""Formatting a document changes its layout and never its content."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codesdk.documents import DocumentUnreadable, dump_yaml, format_yaml
from codesdk.documents.document import parse_document

TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"], include_characters="\n\t"), max_size=30)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXTS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(TEXTS.filter(lambda key: key != "<<"), inner, max_size=4)
    ),
    max_leaves=12,
)


def test_comments_and_order_stay_and_blanks_go():
    before = "# head\nb:   1 # why\na:\n- x\n-    y\n# tail\n"
    assert format_yaml(before) == "# head\nb: 1   # why\na:\n  - x\n  - y\n# tail\n"


def test_the_three_dots_of_a_pattern_stay_as_people_write_them():
    text = "any_of:\n  - [git, push, ...]\n  - [..., x]\n"
    assert format_yaml(text) == text


def test_a_file_of_comments_stays_as_it_is():
    assert format_yaml("# nothing yet\n") == "# nothing yet\n"


def test_what_is_no_document_is_refused_with_its_place():
    with pytest.raises(DocumentUnreadable):
        format_yaml("a: [1\n")
    with pytest.raises(DocumentUnreadable):
        format_yaml("a: &x 1\nb: *x\n")


@given(VALUES)
@settings(max_examples=300, deadline=None)
def test_what_is_written_is_read_back_the_same_and_laid_out_already(value):
    text = dump_yaml({"key": value})
    assert parse_document(text).data == {"key": value}
    assert format_yaml(format_yaml(text)) == format_yaml(text)


@given(st.text(alphabet="ab:-#'\"[]{}., \n&*!|>%@`\t", max_size=60))
@settings(max_examples=500, deadline=None)
def test_any_text_is_laid_out_without_a_change_of_meaning_or_refused(text):
    try:
        after = format_yaml(text)
    except DocumentUnreadable:
        return
    assert parse_document(after).data == parse_document(text).data
