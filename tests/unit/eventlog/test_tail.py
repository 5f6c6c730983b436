from __future__ import annotations

import asyncio
import threading

import pytest
from sqlalchemy import create_engine
from sqlalchemy.exc import OperationalError

from codesdk.domain.clock import SystemClock
from codesdk.domain.events import EventType, RuntimeInfo, Trace
from codesdk.eventlog.hints import LocalHints
from codesdk.eventlog.log import PAGE_SIZE, EventDraft
from codesdk.eventlog.tail import Tail
from stage import wait_for


class Deaf(LocalHints):
    """Loses every hint."""

    def publish(self, session):
        pass


class Reader:
    def __init__(self):
        self.seqs = []

    def __call__(self, events):
        self.seqs += [event.seq for event in events]


def append(stage, count=1, subject=None):
    session = (subject or stage.subject).session_id

    def work(unit):
        for number in range(count):
            trace = Trace(session_id=session)
            stage.log.append(
                unit,
                EventDraft(
                    type=EventType.USAGE_REPORTED, trace=trace, runtime=RuntimeInfo(name="t"), payload={"n": number}
                ),
            )

    stage.writer.run(work)


@pytest.fixture
def follow(stage):
    tails = []

    def make(hints=None, poll_s=30.0):
        tail = Tail(stage.log, hints or stage.hints, SystemClock(), poll_s)
        tails.append(tail)
        return tail

    yield make
    for tail in tails:
        tail.close()
        assert tail._thread is None or not tail._thread.is_alive()


def test_a_subscriber_gets_what_is_there_and_what_comes_each_once(stage, follow):
    append(stage, 3)
    tail, reader = follow(), Reader()
    tail.subscribe(stage.session.id, 0, reader)
    for _ in range(20):
        append(stage)
    wait_for(lambda: len(reader.seqs) >= 24, "all events")
    assert reader.seqs == list(range(1, 25))


def test_resubscribing_at_the_last_seen_seq_loses_and_repeats_nothing(stage, follow):
    tail = follow()
    stop = threading.Event()

    def write():
        while not stop.is_set():
            append(stage, 3)

    writing = threading.Thread(target=write)
    writing.start()
    seen = []
    for _ in range(15):
        reader = Reader()
        subscription = tail.subscribe(stage.session.id, seen[-1] if seen else 0, reader)
        wait_for(lambda reader=reader: len(reader.seqs) > 2, "some events")
        tail.unsubscribe(subscription)
        seen += reader.seqs[:-1] if len(seen) % 2 else reader.seqs  # a reader that missed the last says so
    stop.set()
    writing.join(10)
    assert seen == list(range(1, len(seen) + 1))


def test_lost_hints_are_bridged_by_the_poll(stage, follow):
    hints = Deaf()
    tail, reader = follow(hints, poll_s=0.02), Reader()
    tail.subscribe(stage.session.id, 0, reader)
    stage.log._hints = hints
    for _ in range(5):
        append(stage)
    wait_for(lambda: len(reader.seqs) == 6, "the poll")
    assert reader.seqs == [1, 2, 3, 4, 5, 6]


def test_busy_hints_do_not_starve_the_poll(stage, follow):
    quiet = stage.open_session()
    tail, noisy, reader = follow(poll_s=0.05), Reader(), Reader()
    tail.subscribe(stage.session.id, 0, noisy)
    tail.subscribe(quiet.session_id, 0, reader)
    wait_for(lambda: reader.seqs == [1], "the first event")
    stop = threading.Event()

    def shout():
        while not stop.wait(0.0005):
            stage.hints.publish(stage.session.id)

    shouting = threading.Thread(target=shout)
    shouting.start()
    stage.log._hints = Deaf()
    append(stage, subject=quiet)
    try:
        wait_for(lambda: reader.seqs == [1, 2], "the quiet session's event")
    finally:
        stop.set()
        shouting.join(10)


def test_hints_of_sessions_that_nobody_follows_cause_no_read(stage, follow):
    tail, reader, other = follow(), Reader(), stage.open_session()
    tail.subscribe(stage.session.id, 0, reader)
    wait_for(lambda: reader.seqs == [1], "the first event")
    for _ in range(100):
        stage.hints.publish(other.session_id)
    assert other.session_id not in tail._hinted


def test_without_a_reader_there_is_no_thread_and_no_subscription(stage, follow):
    tail = follow()
    assert tail._thread is None
    assert stage.hints._listeners == []


def test_more_than_a_page_is_delivered_whole(stage, follow):
    append(stage, PAGE_SIZE * 2)
    tail, reader = follow(), Reader()
    tail.subscribe(stage.session.id, 0, reader)
    wait_for(lambda: len(reader.seqs) == PAGE_SIZE * 2 + 1, "two pages")
    assert reader.seqs == list(range(1, PAGE_SIZE * 2 + 2))


def test_a_slow_subscriber_loses_nothing(stage, follow):
    tail, gate = follow(), threading.Event()
    reader = Reader()

    def slow(events):
        gate.wait(10)
        reader(events)

    tail.subscribe(stage.session.id, 0, slow)
    for _ in range(10):
        append(stage)
    gate.set()
    wait_for(lambda: len(reader.seqs) == 11, "all events")
    assert reader.seqs == list(range(1, 12))


def test_a_reader_that_fails_is_dropped_and_the_others_go_on(stage, follow):
    loop = asyncio.new_event_loop()
    loop.close()
    tail, reader = follow(), Reader()
    tail.subscribe(stage.session.id, 0, lambda events: loop.call_soon_threadsafe(print, events))
    tail.subscribe(stage.session.id, 0, reader)
    wait_for(lambda: reader.seqs == [1], "the other reader")
    append(stage)
    wait_for(lambda: reader.seqs == [1, 2], "the other reader, still")
    assert len(tail._subscriptions[stage.session.id]) == 1


def test_nothing_comes_after_unsubscribing(stage, follow):
    tail, gone, there = follow(), Reader(), Reader()
    subscription = tail.subscribe(stage.session.id, 0, gone)
    tail.subscribe(stage.session.id, 0, there)
    wait_for(lambda: gone.seqs == there.seqs == [1], "the first event")
    tail.unsubscribe(subscription)
    tail.unsubscribe(subscription)
    append(stage)
    wait_for(lambda: there.seqs == [1, 2], "the second event")
    assert gone.seqs == [1]


def test_a_database_that_is_away_and_back_costs_no_event(stage, follow):
    tail, reader = follow(poll_s=0.02), Reader()
    tail.subscribe(stage.session.id, 0, reader)
    wait_for(lambda: reader.seqs == [1], "the first event")
    away = create_engine(f"sqlite:///{stage.root / 'gone' / 'x.db'}")
    with pytest.raises(OperationalError):
        away.connect()
    there, stage.database.reader = stage.database.reader, away
    for _ in range(3):
        append(stage)
    threading.Event().wait(0.1)
    assert reader.seqs == [1]
    stage.database.reader = there
    wait_for(lambda: len(reader.seqs) == 4, "the events of meanwhile")
    assert reader.seqs == [1, 2, 3, 4]


def test_a_stale_cursor_beyond_the_head_gets_only_what_comes_after(stage, follow):
    tail, reader = follow(), Reader()
    tail.subscribe(stage.session.id, 2, reader)
    append(stage, 3)
    wait_for(lambda: reader.seqs, "the later events")
    assert reader.seqs == [3, 4]


@pytest.mark.parametrize(
    ("instead", "code"),
    [
        ("{}", "EVENT_UNREADABLE"),
        ('{"schema_ver', "EVENT_UNREADABLE"),
        ("7", "EVENT_UNREADABLE"),
        ("[" * 100_000, "EVENT_UNREADABLE"),
        ('{"schema_version": 99}', "EVENT_SCHEMA_TOO_NEW"),
    ],
)
def test_an_event_that_cannot_be_read_is_told_to_its_reader_and_holds_up_no_other(stage, follow, instead, code):
    other = stage.open_session()
    append(stage, 3)
    tail, broken, whole, faults = follow(poll_s=0.02), Reader(), Reader(), []
    with stage.unreadable(stage.session.id, 3, instead):
        tail.subscribe(stage.session.id, 0, broken, faults.append)
        tail.subscribe(other.session_id, 0, whole)
        append(stage, 2, subject=other)
        wait_for(lambda: whole.seqs == [1, 2, 3], "the other session's events")
        wait_for(lambda: faults, "the reason")
    assert (faults[0].code, faults[0].retryable, len(faults)) == (code, False, 1)
    assert broken.seqs == [1, 2], "what stands before it is nobody's loss"
    assert stage.session.id not in tail._subscriptions


def test_a_defect_in_one_sessions_delivery_ends_its_readers_alone(stage, follow, monkeypatch):
    other = stage.open_session()
    real = stage.log.page

    def breaks(session, after=0):
        if session == stage.session.id:
            raise KeyError("a defect")
        return real(session, after)

    monkeypatch.setattr(stage.log, "page", breaks)
    tail, broken, whole, faults = follow(poll_s=0.02), Reader(), Reader(), []
    tail.subscribe(stage.session.id, 0, broken, faults.append)
    tail.subscribe(other.session_id, 0, whole)
    append(stage, 2, subject=other)
    wait_for(lambda: whole.seqs == [1, 2, 3], "the other session's events")
    wait_for(lambda: faults, "the reason")
    assert ([fault.code for fault in faults], broken.seqs) == (["INTERNAL"], [])
