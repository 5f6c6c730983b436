from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from codesdk.sandbox.runner.protocol import mux as channels
from codesdk.sandbox.runner.protocol.mux import (
    BUFFER,
    CHUNK,
    MAX_STREAMS,
    WINDOW,
    DataReceived,
    Multiplexer,
    MuxError,
    StreamEnded,
    StreamOpened,
    StreamReset,
)


class End:
    """One side, with what a caller would know of its streams."""

    def __init__(self, opener: bool) -> None:
        self.channel = Multiplexer(opener)
        self.got: dict[int, bytearray] = {}
        self.sent: dict[int, bytearray] = {}
        self.finished: set[int] = set()
        self.their_end: set[int] = set()
        self.reset: set[int] = set()
        self.unread: dict[int, int] = {}
        self.wire = bytearray()

    def new(self, stream: int) -> None:
        self.got[stream], self.sent[stream], self.unread[stream] = bytearray(), bytearray(), 0

    def feed(self, data: bytes) -> None:
        for event in self.channel.feed(data):
            if isinstance(event, StreamOpened):
                self.new(event.stream)
            elif isinstance(event, DataReceived):
                self.got[event.stream] += event.data
                self.unread[event.stream] += len(event.data)
            elif isinstance(event, StreamEnded):
                self.their_end.add(event.stream)
            elif isinstance(event, StreamReset):
                self.reset.add(event.stream)


class Streams(RuleBasedStateMachine):
    """Two sides and a wire that cuts anywhere."""

    def __init__(self) -> None:
        super().__init__()
        self.ends = (End(opener=True), End(opener=False))
        self.random = random.Random(7)

    @rule()
    def open(self):
        stream = self.ends[0].channel.open(b"label")
        if stream is not None:
            self.ends[0].new(stream)

    @precondition(lambda self: self.ends[0].sent)
    @rule(side=st.integers(0, 1), pick=st.integers(0, 100), size=st.sampled_from([1, 100, CHUNK, BUFFER]))
    def send(self, side, pick, size):
        end = self.ends[side]
        if not end.sent:
            return
        stream = list(end.sent)[pick % len(end.sent)]
        data = self.random.randbytes(min(size, end.channel.room(stream)))
        end.channel.send(stream, data)
        end.sent[stream] += data

    @rule(side=st.integers(0, 1), limit=st.integers(2000, 70_000), cut=st.integers(0, 100))
    def move(self, side, limit, cut):
        here, there = self.ends[side], self.ends[1 - side]
        block = here.channel.take(limit)
        assert len(block) <= limit
        here.wire += block
        count = len(here.wire) * cut // 100
        there.feed(bytes(here.wire[:count]))
        del here.wire[:count]

    @rule(side=st.integers(0, 1), pick=st.integers(0, 100))
    def read(self, side, pick):
        end = self.ends[side]
        if end.unread:
            stream = list(end.unread)[pick % len(end.unread)]
            count, end.unread[stream] = end.unread[stream], 0
            end.channel.consumed(stream, count)

    @rule(side=st.integers(0, 1), pick=st.integers(0, 100))
    def finish(self, side, pick):
        end = self.ends[side]
        if end.sent:
            stream = list(end.sent)[pick % len(end.sent)]
            end.channel.finish(stream)
            end.finished.add(stream)

    @rule(side=st.integers(0, 1), pick=st.integers(0, 300))
    def end_at_once(self, side, pick):
        end = self.ends[side]
        if end.sent and pick < 30:
            stream = list(end.sent)[pick % len(end.sent)]
            end.channel.reset(stream)
            end.reset.add(stream)

    @invariant()
    def bytes_arrive_in_order_and_no_more_than_granted_waits(self):
        for here, there in (self.ends, self.ends[::-1]):
            for stream, sent in here.sent.items():
                got = there.got.get(stream, b"")
                assert sent.startswith(got)
                assert there.unread.get(stream, 0) <= WINDOW
            for stream in there.their_end:
                assert here.sent[stream] == there.got[stream]

    def teardown(self):
        for _ in range(20_000):
            moved = False
            for side in (0, 1):
                here, there = self.ends[side], self.ends[1 - side]
                here.wire += here.channel.take(70_000)
                moved |= bool(here.wire)
                there.feed(bytes(here.wire))
                here.wire.clear()
                for stream in there.unread:
                    count, there.unread[stream] = there.unread[stream], 0
                    there.channel.consumed(stream, count)
            if not moved:
                break
        for here, there in (self.ends, self.ends[::-1]):
            for stream, sent in here.sent.items():
                if stream not in here.reset | there.reset:
                    assert there.got[stream] == sent
                    assert (stream in there.their_end) == (stream in here.finished)


TestStreams = Streams.TestCase
TestStreams.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)


def pair() -> tuple[Multiplexer, Multiplexer, int]:
    runner, worker = Multiplexer(opener=True), Multiplexer(opener=False)
    stream = runner.open(b"x")
    assert stream is not None
    list(worker.feed(runner.take(1000)))
    return runner, worker, stream


def fill(side: Multiplexer, stream: int) -> bytes:
    """Send all that goes out without credit."""
    out = b""
    while room := side.room(stream):
        side.send(stream, bytes(room))
        out += side.take(1 << 20)
    return out


def test_a_stream_that_nobody_reads_stops_its_sender_and_no_other():
    runner, worker, stuck = pair()
    other = runner.open(b"y")
    list(worker.feed(runner.take(1000)))
    fill(worker, stuck)
    assert worker.room(stuck) == 0
    worker.send(other, b"alive")
    assert [
        event.data
        for event in runner.feed(worker.take(1 << 20))
        if isinstance(event, DataReceived) and event.stream == other
    ] == [b"alive"]


def test_streams_take_turns_of_one_chunk():
    runner, _, first = pair()
    second = runner.open(b"y")
    runner.take(1000)
    runner.send(first, bytes(BUFFER))
    runner.send(second, bytes(100))
    block = runner.take(2 * CHUNK)
    kinds = [(kind, stream) for kind, stream, _ in frames(block)]
    assert kinds[:2] == [(channels.DATA, first), (channels.DATA, second)]


def test_control_frames_go_before_bytes():
    runner, _, first = pair()
    runner.send(first, bytes(BUFFER))
    runner.open(b"y")
    assert frames(runner.take(CHUNK))[0][0] == channels.OPEN


def frames(block: bytes) -> list[tuple[int, int, int]]:
    found, place = [], 0
    while place < len(block):
        kind, stream, number = channels._HEAD.unpack_from(block, place)
        found.append((kind, stream, number))
        place += channels._HEAD.size + (0 if kind == channels.CREDIT else number)
    return found


def frame(kind: int, stream: int, payload: bytes = b"", number: int | None = None) -> bytes:
    return channels._HEAD.pack(kind, stream, len(payload) if number is None else number) + payload


@pytest.mark.parametrize(
    "data",
    [
        frame(9, 1), frame(0, 1), frame(channels.DATA, 1, bytes(CHUNK + 1)), frame(channels.DATA, 1, number=1 << 31),
        frame(channels.OPEN, 3, b"x"), frame(channels.OPEN, 1, b"x"), frame(channels.OPEN, 2, bytes(2000)),
        frame(channels.DATA, 7, b"x"), frame(channels.CREDIT, 1, number=1), frame(channels.CREDIT, 1, number=(1 << 32) - 1),
        frame(channels.FIN, 1) * 2, frame(channels.FIN, 1) + frame(channels.DATA, 1, b"x"), frame(channels.RESET, 9),
        frame(channels.DATA, 1, bytes(CHUNK)) * (WINDOW // CHUNK) + frame(channels.DATA, 1, b"x"),
    ],
)  # fmt: skip
def test_a_peer_that_breaks_the_rules_ends_the_channel(data):
    _, worker, _ = pair()
    with pytest.raises(MuxError):
        list(worker.feed(data))


def test_the_worker_cannot_be_made_to_hold_more_streams_than_agreed():
    worker = Multiplexer(opener=False)
    opened = list(worker.feed(b"".join(frame(channels.OPEN, number + 1, b"x") for number in range(MAX_STREAMS + 5))))
    assert len(opened) == MAX_STREAMS
    assert [kind for kind, _, _ in frames(worker.take(10_000))] == [channels.RESET] * 5


def test_a_flood_of_opens_ends_the_channel():
    worker = Multiplexer(opener=False)
    with pytest.raises(MuxError):
        list(worker.feed(b"".join(frame(channels.OPEN, number + 1, b"x") for number in range(5000))))


def test_frames_that_cross_a_reset_are_forgiven():
    runner, worker, stream = pair()
    worker.reset(stream)
    runner.send(stream, b"late")
    assert list(worker.feed(runner.take(1000))) == []


@given(st.lists(st.binary(max_size=60), max_size=8))
def test_any_bytes_are_events_or_the_end(parts):
    _, worker, _ = pair()
    try:
        for part in parts:
            list(worker.feed(part))
            worker.take(60_000)
    except MuxError:
        pass
