"""Laying a document out changes how it stands and never what it says."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codesdk.documents import Unreadable, dumped, laid_out
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
    assert laid_out(before) == "# head\nb: 1   # why\na:\n  - x\n  - y\n# tail\n"


def test_the_three_dots_of_a_pattern_stay_as_people_write_them():
    text = "any_of:\n  - [git, push, ...]\n  - [..., x]\n"
    assert laid_out(text) == text


def test_a_file_of_comments_stays_as_it_is():
    assert laid_out("# nothing yet\n") == "# nothing yet\n"


def test_what_is_no_document_is_refused_with_its_place():
    with pytest.raises(Unreadable):
        laid_out("a: [1\n")
    with pytest.raises(Unreadable):
        laid_out("a: &x 1\nb: *x\n")


@given(VALUES)
@settings(max_examples=300, deadline=None)
def test_what_is_written_is_read_back_the_same_and_laid_out_already(value):
    text = dumped({"key": value})
    assert parse_document(text).data == {"key": value}
    assert laid_out(laid_out(text)) == laid_out(text)


@given(st.text(alphabet="ab:-#'\"[]{}., \n&*!|>%@`\t", max_size=60))
@settings(max_examples=500, deadline=None)
def test_any_text_is_laid_out_without_a_change_of_meaning_or_refused(text):
    try:
        after = laid_out(text)
    except Unreadable:
        return
    assert parse_document(after).data == parse_document(text).data
