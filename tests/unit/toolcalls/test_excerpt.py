from __future__ import annotations

import itertools
import re

from hypothesis import given
from hypothesis import strategies as st

from codesdk.tools.command import Excerpt

MARK = re.compile(r"\n\[… (\d+) bytes left out; the whole output is in the artifact …\]\n")


def excerpt(data, limit, cuts=()):
    made = Excerpt(limit)
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for start, end in itertools.pairwise(places):
        made.add(data[start:end])
    return made


@given(st.binary(max_size=400), st.integers(2, 64), st.lists(st.integers(0, 400), max_size=8))
def test_how_the_stream_was_cut_into_chunks_does_not_matter(data, limit, cuts):
    assert excerpt(data, limit, cuts).text() == excerpt(data, limit).text()


@given(st.binary(max_size=64), st.integers(64, 128))
def test_what_fits_is_shown_whole(data, limit):
    made = excerpt(data, limit)
    assert not made.cut
    assert (made.text(), made.shown) == (data.decode("utf-8", "replace"), len(data))


@given(st.text(max_size=300), st.integers(8, 64))
def test_of_text_only_whole_characters_are_shown_and_the_rest_is_counted(text, limit):
    data = text.encode("utf-8", "ignore")
    made = excerpt(data, limit)
    if not made.cut:
        return
    head, counted, tail = MARK.split(made.text())
    assert data.startswith(head.encode())
    assert data.endswith(tail.encode())
    assert len(head.encode()) + int(counted) + len(tail.encode()) == len(data)
    assert made.shown == len(data) - int(counted)
    assert made.shown <= limit


@given(st.binary(min_size=65, max_size=400))
def test_bytes_that_are_no_text_are_shown_as_such_and_never_vanish(data):
    made = excerpt(data, 64)
    assert made.cut
    assert 64 - 6 <= made.shown <= 64
    head, counted, tail = MARK.split(made.text().replace("\ufffd", "?"))
    assert int(counted) + made.shown == len(data)
    assert data[:32].decode("utf-8", "replace").replace("\ufffd", "?").startswith(head)
    assert data[-32:].decode("utf-8", "replace").replace("\ufffd", "?").endswith(tail)


@given(st.integers(0, 2000), st.integers(2, 32))
def test_memory_is_bounded(size, limit):
    made = excerpt(b"x" * size, limit, range(0, size, 7))
    assert len(made._head) + len(made._tail) <= 3 * limit + 7


@given(st.binary(max_size=80), st.integers(1, 999), st.binary(max_size=80), st.integers(2, 64))
def test_a_drop_is_always_marked_and_every_byte_is_shown_or_counted(before, dropped, after, limit):
    made = Excerpt(limit)
    made.add(before, 0)
    if after:
        made.add(after, len(before) + dropped)
    made.end(len(before) + dropped + len(after))
    total = len(before) + dropped + len(after)
    assert made.cut
    assert f"[… {total - made.shown} bytes left out; {dropped} of them were too many to keep" in made.text()
    assert made.shown <= limit
