"""Cursors of readers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from codesdk.api.cursor import encode_cursor, start_position

EPOCHS = st.from_regex(r"req_[0-9A-HJKMNP-TV-Z]{26}", fullmatch=True)


def test_without_a_cursor_the_stream_begins_at_the_beginning():
    assert start_position(None, "e", 7) == ("e", 0, None)


@given(EPOCHS, st.integers(0, 10**9), st.integers(0, 10**6))
def test_the_cursor_of_a_place_leads_back_to_it(epoch, seq, more):
    assert start_position(encode_cursor(epoch, seq), epoch, seq + more) == (epoch, seq, None)


@given(EPOCHS, EPOCHS, st.integers(0, 10**9))
def test_the_cursor_of_another_epoch_is_never_served(epoch, other, seq):
    begin = start_position(encode_cursor(other, seq), epoch, seq)
    assert (begin.after, begin.resync is None) == ((seq, True) if other == epoch else (0, False))


@given(EPOCHS, st.integers(0, 10**6), st.integers(1, 10**6))
def test_a_cursor_past_the_end_is_never_served(epoch, head, more):
    assert start_position(encode_cursor(epoch, head + more), epoch, head).resync


@given(st.text(max_size=200), st.integers(0, 100))
def test_any_text_begins_somewhere_in_the_log(text, head):
    begin = start_position(text, "epoch", head)
    assert 0 <= begin.after <= head
    assert begin.resync is None or begin.after == 0
