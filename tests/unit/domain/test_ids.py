from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codesdk.domain.clock import ManualClock
from codesdk.domain.ids import CountingIds, IdKind, RandomIds, is_id

kinds = st.sampled_from(IdKind)
moments = st.datetimes(datetime(1970, 1, 2), datetime(9999, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001


@given(moments, moments, kinds)
def test_ids_sort_by_the_millisecond_in_which_they_were_made(one, other, kind):
    first, second = sorted(int(moment.timestamp() * 1000) for moment in (one, other))
    ids = [RandomIds(ManualClock(datetime.fromtimestamp(ms / 1000, UTC))).new(kind) for ms in (first, second)]
    assert first == second or ids[0] < ids[1]


def test_ids_of_one_moment_differ():
    ids = RandomIds(ManualClock())
    assert len({ids.new(IdKind.CALL) for _ in range(1000)}) == 1000


@given(kinds, kinds)
def test_an_id_is_of_its_kind_only(kind, other):
    assert is_id(RandomIds(ManualClock()).new(kind), other) == (kind is other)


@pytest.mark.parametrize("ids", [CountingIds(), RandomIds(ManualClock())], ids=["fake", "real"])
@pytest.mark.parametrize("kind", IdKind)
def test_every_implementation_makes_recognised_ids_in_order(ids, kind):
    one, two = ids.new(kind), ids.new(kind)
    assert is_id(one, kind)
    assert is_id(two, kind)
    assert one != two


@given(kinds, st.text())
def test_nothing_else_is_an_id(kind, text):
    assert not is_id(text, kind) or (len(text) == len(kind) + 27 and text.isascii())


@given(kinds, st.sampled_from(["\n", " ", "x", "\0", "-", "/", "é"]), st.booleans())
def test_an_id_with_anything_around_it_is_none(kind, extra, front):
    made = RandomIds(ManualClock()).new(kind)
    assert not is_id(extra + made if front else made + extra, kind)


@given(kinds, st.integers(0, 25), st.sampled_from("ILOUilouabcz_-"))
def test_letters_outside_the_alphabet_are_refused(kind, place, letter):
    prefix, _, body = RandomIds(ManualClock()).new(kind).partition("_")
    assert not is_id(f"{prefix}_{body[:place]}{letter}{body[place + 1 :]}", kind)
