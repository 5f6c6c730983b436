"""A session's events as a stream: each once, in order, across reconnects, with keep-alives."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from contextlib import contextmanager

import pytest
from sqlalchemy import text

from codesdk.api import event_stream as streams
from codesdk.api.cursor import StartPosition
from codesdk.domain.events import EventType, RuntimeInfo, Trace
from codesdk.eventlog.log import PAGE_BYTES, EventDraft
from databases import ON_BOTH
from frames import Reader, parsed
from stage import wait_for


@pytest.fixture
def watch(stack):
    key = stack.key()

    @contextmanager
    def connect(session, last=None, **query):
        headers = {"Accept": "text/event-stream", **({"Last-Event-ID": last} if last else {})}
        path = f"/v1/sessions/{session.id}/events"
        with stack.http(key) as client, client.stream("GET", path, headers=headers, params=query) as answer:
            assert answer.status_code == 200
            assert answer.headers["content-type"].startswith("text/event-stream")
            yield Reader(parsed(answer.iter_lines()))

    return connect


def call(stack, token, path="a"):
    stack.services.pipeline.submit("workspace_read", {"path": path}, stack.services.directory.subject(token))


def seqs(frames):
    return [frame["data"]["seq"] for frame in frames]


@ON_BOTH
def test_a_reader_gets_what_was_and_what_comes_each_once(stack, watch):
    session, token = stack.open_session()
    call(stack, token)
    with watch(session) as reader:
        assert seqs(reader.take(6)) == [1, 2, 3, 4, 5, 6]
        call(stack, token)
        assert seqs(reader.take(5)) == [7, 8, 9, 10, 11]


@ON_BOTH
def test_a_reader_that_comes_back_misses_nothing_and_gets_nothing_twice(stack, watch):
    session, token = stack.open_session()
    call(stack, token)
    with watch(session) as reader:
        last = reader.take(3)[-1]["id"]
    call(stack, token)
    with watch(session, last) as reader:
        assert seqs(reader.take(8)) == [4, 5, 6, 7, 8, 9, 10, 11]


def test_an_event_is_the_same_in_the_stream_in_a_page_and_in_the_log(stack, watch):
    session, token = stack.open_session()
    call(stack, token)
    with watch(session) as reader:
        streamed = [frame["data"] for frame in reader.take(6)]
    with stack.http(stack.key()) as client:
        paged = client.get(f"/v1/sessions/{session.id}/events").json()["events"]
    logged = [json.loads(event.model_dump_json(exclude_none=True)) for event in stack.services.log.read(session.id)]
    assert streamed == paged == logged


@pytest.mark.parametrize("place", ["req_00000000000000000000000001-2", "{epoch}-999", "nonsense", "{epoch}--1"])
def test_a_cursor_that_cannot_be_served_gets_one_resync_and_then_everything(stack, watch, place):
    session, token = stack.open_session()
    call(stack, token)
    wait_for(lambda: stack.services.log.head(session.id) == 6, "the call's end", 60)
    epoch, _ = stack.services.log.position(session.id)
    with watch(session, place.format(epoch=epoch)) as reader:
        first, *others = reader.take(7)
    assert (first["event"], first["id"]) == ("resync", f"{epoch}-0")
    assert (first["data"]["epoch"], first["data"]["head"]) == (epoch, stack.services.log.head(session.id))
    assert seqs(others) == [1, 2, 3, 4, 5, 6]
    assert all("event" not in frame for frame in others)


def test_a_place_can_be_given_in_the_address_too(stack, watch):
    session, token = stack.open_session()
    call(stack, token)
    with watch(session, after="4") as reader:
        assert seqs(reader.take(2)) == [5, 6]


def test_a_long_log_is_read_to_its_end(stack, watch):
    session, token = stack.open_session()
    stack.worker.paused = True
    for number in range(400):
        call(stack, token, f"f{number}")
    with watch(session) as reader:
        assert seqs(reader.take(801)) == list(range(1, 802))


def test_a_silent_stream_shows_that_it_lives(stack, watch, monkeypatch):
    monkeypatch.setattr(streams, "HEARTBEAT_S", 0.2)
    session, _ = stack.open_session()
    with watch(session) as reader:
        reader.take(1)
        assert reader.comment()


def test_a_reader_that_is_too_far_behind_is_sent_away_with_a_reason_and_its_place(stack, helpers, watch):
    session, token = stack.open_session()
    stack.worker.paused = True
    epoch, head = stack.services.log.position(session.id)
    text = ""

    async def go():
        reading = asyncio.Event()
        stream = streams.EventStream(
            log=stack.services.log,
            tail=stack.services.tail,
            readers=streams.OpenStreams(0),
            tenant=session.tenant_id,
            session=session.id,
            begin=StartPosition(epoch, 0, None),
            head=head,
            inbox_limit=4,
        )

        async def send(message):
            nonlocal text
            text += message.get("body", b"").decode()
            if '"seq":2' in text:  # the reader takes two events, and then nothing for a while
                await reading.wait()

        async def receive():
            await asyncio.sleep(60)

        served = asyncio.create_task(stream({}, receive, send))
        await asyncio.to_thread(helpers.eventually, lambda: '"seq":1' in text)
        for number in range(6):
            await asyncio.to_thread(call, stack, token, f"f{number}")
        await asyncio.sleep(0.5)
        reading.set()
        await served

    helpers.within(go())
    *events, last = [frame for frame in parsed(text.split("\n")) if "data" in frame]
    assert seqs(events) == list(range(1, len(events) + 1))
    assert len(events) < stack.services.log.head(session.id)
    assert (last["event"], last["id"]) == ("evicted", f"{epoch}-{len(events)}")
    assert "more than 4 events" in last["data"]["reason"]
    with watch(session, last["id"]) as reader:
        assert seqs(reader.take(1)) == [len(events) + 1]


def test_a_reader_that_takes_nothing_at_all_is_left(stack, helpers, monkeypatch):
    monkeypatch.setattr(streams, "SEND_TIMEOUT_S", 0.2)
    session, _ = stack.open_session()
    epoch, head = stack.services.log.position(session.id)
    readers = streams.OpenStreams(0)

    async def go():
        stream = streams.EventStream(
            log=stack.services.log,
            tail=stack.services.tail,
            readers=readers,
            tenant=session.tenant_id,
            session=session.id,
            begin=StartPosition(epoch, 0, None),
            head=head,
        )

        async def send(message):
            if message["type"] == "http.response.body":
                await asyncio.sleep(60)

        async def receive():
            await asyncio.sleep(60)

        await stream({}, receive, send)

    helpers.within(go(), 5.0)
    assert readers._readers == {}
    assert stack.services.tail._subscriptions == {}


def test_a_reader_that_goes_leaves_nothing_behind(stack, helpers, watch):
    session, _ = stack.open_session()
    with watch(session) as reader:
        reader.take(1)
        helpers.eventually(lambda: stack.services.tail._subscriptions)
    helpers.eventually(lambda: stack.services.tail._subscriptions == {})


@pytest.mark.parametrize(
    "end",
    ["UPDATE api_keys SET revoked_at = 1", "UPDATE tenants SET suspended_at = 1", "UPDATE principals SET roles = '[]'"],
    ids=["revoked key", "suspended tenant", "lost role"],
)
def test_a_reader_that_may_read_no_more_is_sent_away_within_a_bounded_time(stack, watch, monkeypatch, end):
    monkeypatch.setattr(streams, "RECHECK_S", 0.3)
    session, _ = stack.open_session()
    with watch(session) as reader:
        reader.take(1)
        stack.services.writer.run(lambda unit: unit.connection.execute(text(end)))
        began = time.monotonic()
        *_, last = reader.rest()
        assert time.monotonic() - began < 10
    assert last["event"] == "evicted"
    assert "may not read this any more" in last["data"]["reason"]


@pytest.mark.parametrize("instead", ['{"cut', '{"schema_version": 99}'])
def test_a_reader_gets_all_before_an_event_that_cannot_be_read_then_the_reason_and_then_a_problem(
    stack, watch, helpers, instead
):
    session, token = stack.open_session()
    call(stack, token)
    helpers.eventually(lambda: stack.services.log.head(session.id) == 6)
    tamper = text("UPDATE events SET body = :body WHERE session_id = :id AND seq = 4")
    stack.services.writer.run(lambda unit: unit.connection.execute(tamper, {"body": instead, "id": session.id}))
    with watch(session) as reader:
        *before, last = reader.rest()
    assert seqs(before) == [1, 2, 3]
    assert (last["event"], last["id"]) == ("evicted", before[-1]["id"])
    path = f"/v1/sessions/{session.id}/events"
    with stack.http(stack.key()) as client:
        page = client.get(path).json()
        assert [event["seq"] for event in page["events"]] == [1, 2, 3]
        for headers in ({}, {"Accept": "text/event-stream"}):
            problem = client.get(path, params={"after": page["next"]}, headers=headers)
            assert (problem.status_code, problem.json()["code"]) == (500, last["data"]["code"])
        after = client.get(path, params={"after": "4"}).json()
    assert after["events"][0]["seq"] == 5, "whoever knows better may go on after it"


def test_a_busy_stream_is_rechecked_too(stack, watch, monkeypatch):
    monkeypatch.setattr(streams, "RECHECK_S", 0.3)
    session, token = stack.open_session()
    subject = stack.services.directory.subject(token)
    stop = threading.Event()

    def shout():
        while not stop.wait(0.02):
            stack.services.pipeline.submit("workspace_read", {"path": "a"}, subject)

    shouting = threading.Thread(target=shout)
    with watch(session) as reader:
        shouting.start()
        try:
            reader.take(10)
            stack.services.writer.run(lambda unit: unit.connection.execute(text("UPDATE api_keys SET revoked_at = 1")))
            *_, last = reader.rest()
        finally:
            stop.set()
            shouting.join(10)
    assert last["event"] == "evicted"


def test_stopping_the_process_ends_the_streams_soon(stack, watch):
    session, _ = stack.open_session()
    with watch(session) as reader:
        reader.take(1)
        began = time.monotonic()
        stack.stop()
        assert reader.rest() == []
    assert time.monotonic() - began < 2.0


BIG = "\0" * 16_000
"""A JSON text of 96,000 bytes."""


def fill(stack, session, count):
    """Log this many large events, one unit each."""
    trace = Trace(session_id=session.id)
    for number in range(count):
        payload = {"n": number, "text": BIG}
        draft = EventDraft(type=EventType.USAGE_REPORTED, trace=trace, runtime=RuntimeInfo(name="t"), payload=payload)
        stack.services.writer.run(lambda unit, draft=draft: stack.services.log.append(unit, draft))


@ON_BOTH
def test_a_page_of_large_events_ends_early_and_the_next_continues_it(stack):
    session, _ = stack.open_session()
    fill(stack, session, 40)
    found, pages, after = [], 0, None
    with stack.http(stack.key()) as client:
        while True:
            params = {"limit": 500, **({"after": after} if after else {})}
            answer = client.get(f"/v1/sessions/{session.id}/events", params=params).raise_for_status()
            assert len(answer.content) < 2 * PAGE_BYTES
            page = answer.json()
            found += [event["seq"] for event in page["events"]]
            pages, after = pages + 1, page["next"]
            if found[-1] == page["head"]:
                break
    assert found == list(range(1, 42))
    assert pages == 4


@ON_BOTH
def test_a_reader_gets_all_large_events(stack, watch):
    session, _ = stack.open_session()
    fill(stack, session, 30)
    with watch(session) as reader:
        assert seqs(reader.take(31)) == list(range(1, 32))
        fill(stack, session, 30)
        assert seqs(reader.take(30)) == list(range(32, 62))


def test_a_slow_reader_of_large_events_is_sent_away_before_it_fills_the_memory(stack, helpers, watch):
    session, _ = stack.open_session()
    epoch, head = stack.services.log.position(session.id)
    sent = []

    async def go():
        reading = asyncio.Event()
        stream = streams.EventStream(
            log=stack.services.log,
            tail=stack.services.tail,
            readers=streams.OpenStreams(0),
            tenant=session.tenant_id,
            session=session.id,
            begin=StartPosition(epoch, 0, None),
            head=head,
        )

        async def send(message):
            sent.append(message.get("body", b""))
            if b'"seq":2' in sent[-1]:  # the reader takes two events, and then nothing for a while
                await reading.wait()

        async def receive():
            await asyncio.sleep(60)

        served = asyncio.create_task(stream({}, receive, send))
        await asyncio.to_thread(helpers.eventually, lambda: any(b'"seq":1' in body for body in sent))
        await asyncio.to_thread(fill, stack, session, 2 + streams.MAX_BUFFERED_BYTES // (6 * len(BIG)))
        await asyncio.sleep(0.5)
        reading.set()
        await served

    helpers.within(go())
    *_, last = [frame for frame in parsed(b"".join(sent).decode().split("\n")) if "data" in frame]
    assert (last["event"], last["id"]) == ("evicted", f"{epoch}-2")
    assert f"{streams.MAX_BUFFERED_BYTES} bytes waited" in last["data"]["reason"]
    with watch(session, last["id"]) as reader:
        assert seqs(reader.take(1)) == [3]
