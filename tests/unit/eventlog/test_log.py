from __future__ import annotations

import math
import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codesdk.domain.events import EventType, RuntimeInfo, Trace
from codesdk.domain.ids import SessionId
from codesdk.errors import InternalFault
from codesdk.eventlog.log import MAX_EVENT_BYTES, PAGE_SIZE, EventDraft, EventTooLarge

TEXT = st.text(st.characters(exclude_categories=["Cs"]))


def draft(session, **payload):
    return EventDraft(
        type=EventType.USAGE_REPORTED, trace=Trace(session_id=session), runtime=RuntimeInfo(name="t"), payload=payload
    )


def append(stage, session, *payloads):
    def work(unit):
        for payload in payloads:
            stage.log.append(unit, draft(session, n=payload))

    stage.writer.run(work)


def test_seq_is_dense_from_one(stage):
    append(stage, stage.session.id, *range(20))
    assert [event.seq for event in stage.events()] == list(range(1, 22))


def test_events_of_one_unit_keep_their_order(stage):
    append(stage, stage.session.id, *range(50))
    assert [event.payload["n"] for event in stage.events(after=1)] == list(range(50))


def test_a_unit_that_fails_leaves_no_gap(stage):
    def breaks(unit):
        stage.log.append(unit, draft(stage.session.id, n="lost"))
        raise ValueError("mine")

    append(stage, stage.session.id, 1)
    with pytest.raises(ValueError, match="mine"):
        stage.writer.run(breaks)
    append(stage, stage.session.id, 2)
    assert [(event.seq, event.payload.get("n")) for event in stage.events(after=1)] == [(2, 1), (3, 2)]


def test_sessions_have_numbers_of_their_own(stage):
    other = stage.open_session()

    def work(unit):
        for number in range(5):
            stage.log.append(unit, draft(stage.session.id, n=number))
            stage.log.append(unit, draft(other.session_id, n=number))

    stage.writer.run(work)
    assert [e.seq for e in stage.events()] == [e.seq for e in stage.events(other)] == [1, 2, 3, 4, 5, 6]


def test_many_threads_append_without_gap_or_double(stage):
    def hammer(name):
        for number in range(25):
            append(stage, stage.session.id, f"{name}-{number}")

    threads = [threading.Thread(target=hammer, args=(name,)) for name in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    events = stage.events(after=1)
    assert [event.seq for event in events] == list(range(2, 152))
    assert len({event.payload["n"] for event in events}) == 150
    for name in range(6):
        own = [event.payload["n"] for event in events if str(event.payload["n"]).startswith(f"{name}-")]
        assert own == [f"{name}-{number}" for number in range(25)]


def test_an_event_of_an_unknown_session_is_refused(stage):
    with pytest.raises(InternalFault, match="does not exist"):
        append(stage, SessionId("ses_none"), 1)


@pytest.mark.parametrize("value", [math.nan, math.inf, "\ud800", object()], ids=["nan", "inf", "surrogate", "object"])
def test_what_json_cannot_say_fails_in_its_unit_and_disturbs_no_other(stage, value):
    # The insert runs as a late step of the whole group: by then it would be too late to fail alone.
    with pytest.raises((ValueError, TypeError)):
        stage.writer.run(lambda unit: stage.log.append(unit, draft(stage.session.id, n=value)))
    assert len(stage.events()) == 1


def test_an_event_that_is_too_large_is_refused_in_its_unit_and_the_next_is_taken(stage):
    with pytest.raises(EventTooLarge, match=str(MAX_EVENT_BYTES)):
        append(stage, stage.session.id, "é" * (MAX_EVENT_BYTES // 2))
    append(stage, stage.session.id, "x" * (MAX_EVENT_BYTES - 1000))
    assert [event.seq for event in stage.events()] == [1, 2]


def test_a_reader_gets_pages_in_order(stage):
    append(stage, stage.session.id, *range(PAGE_SIZE + 10))
    first = stage.log.read(stage.session.id)
    assert len(first) == PAGE_SIZE
    assert [e.seq for e in stage.log.read(stage.session.id, first[-1].seq)] == list(
        range(PAGE_SIZE + 1, PAGE_SIZE + 12)
    )
    assert len(stage.log.read(stage.session.id, limit=3)) == 3
    assert len(stage.log.read(stage.session.id, limit=10**9)) == PAGE_SIZE


def test_heads_tell_the_newest_number_of_sessions_that_exist(stage):
    append(stage, stage.session.id, 1, 2)
    assert stage.log.head(stage.session.id) == 3
    assert stage.log.head(SessionId("ses_none")) == 0
    assert stage.log.heads([stage.session.id, SessionId("ses_none")]) == {stage.session.id: 3}


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(TEXT, st.recursive(TEXT | st.integers(), lambda inner: st.lists(inner, max_size=3)), max_size=3))
def test_a_payload_comes_back_as_it_went_in(stage, payload):
    stage.writer.run(lambda unit: stage.log.append(unit, draft(stage.session.id, value=payload)))
    assert stage.log.read(stage.session.id, stage.log.head(stage.session.id) - 1)[0].payload == {"value": payload}


def test_readers_are_told_after_the_commit(stage):
    seen = []
    stage.hints.listen(lambda session: seen.append((session, stage.log.head(session))))
    append(stage, stage.session.id, 1)
    stage.writer.close()  # the hint of the session's first event may still have been on its way
    assert seen[-1] == (stage.session.id, 2)
