from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from codesdk.sandbox.runner.execution.spool import MAX_SEGMENTS, Budget, Cursor, FlowControlledSpool, Spool

WRITES = st.lists(st.tuples(st.integers(0, 1), st.binary(min_size=1, max_size=50)), max_size=60)


def drain(spool: Spool, cursor: Cursor, limit: int = 16) -> list[tuple[int, int, bytes]]:
    found = []
    while (chunk := spool.after(cursor, limit)) is not None:
        found.append(chunk)
    return found


def joined(chunks, stream: int) -> bytes:
    return b"".join(data for which, _, data in chunks if which == stream)


@given(WRITES, st.lists(st.booleans(), max_size=60), st.integers(1, 40))
def test_a_reader_gets_every_byte_once_whenever_it_reads(writes, reads, limit):
    spool, cursor, chunks = Spool(10_000, Budget(10_000)), Cursor(), []
    for index, (stream, data) in enumerate(writes):
        spool.add(stream, data)
        if index < len(reads) and reads[index]:
            chunks += drain(spool, cursor, limit)
    chunks += drain(spool, cursor, limit)
    for stream in (0, 1):
        assert joined(chunks, stream) == b"".join(data for which, data in writes if which == stream)


@given(WRITES, st.integers(0, 200), st.integers(0, 200))
def test_a_reader_that_comes_back_gets_the_rest(writes, first, second):
    spool = Spool(10_000, Budget(10_000))
    for stream, data in writes:
        spool.add(stream, data)
    whole = [b"".join(data for which, data in writes if which == stream) for stream in (0, 1)]
    start = [min(first, len(whole[0])), min(second, len(whole[1]))]
    chunks = drain(spool, Cursor(*start))
    for stream in (0, 1):
        assert joined(chunks, stream) == whole[stream][start[stream] :]


def test_the_order_between_the_streams_is_kept():
    spool = Spool(100, Budget(100))
    for stream, data in ((0, b"a"), (1, b"b"), (0, b"c")):
        spool.add(stream, data)
    assert [(stream, data) for stream, _, data in drain(spool, Cursor())] == [(0, b"a"), (1, b"b"), (0, b"c")]


@given(WRITES, st.integers(0, 100), st.integers(0, 150), st.lists(st.booleans(), max_size=60))
def test_head_and_tail_are_kept_and_the_gap_is_exact(writes, keep, budget, reads):
    spool, cursor, chunks = Spool(keep, Budget(budget)), Cursor(), []
    for index, (stream, data) in enumerate(writes):
        spool.add(stream, data)
        if index < len(reads) and reads[index]:
            chunks += drain(spool, cursor)
    spool.over = True
    chunks += drain(spool, cursor)
    for stream, (seen, dropped, gap) in enumerate(spool.counts()):
        whole = b"".join(data for which, data in writes if which == stream)
        assert seen == len(whole)
        assert seen - dropped <= keep
        assert joined(chunks, stream) == whole[:gap] + whole[gap + dropped :]
        assert all(whole[offset : offset + len(data)] == data for which, offset, data in chunks if which == stream)
        if budget >= 2 * keep:
            assert dropped == max(0, seen - keep)
            assert not dropped or gap == keep - keep // 2
    assert sum(len(data) for _, _, data in chunks) <= budget


@given(WRITES, st.integers(0, 100), st.integers(0, 3100), st.integers(1, 40))
def test_any_place_can_be_read_as_far_as_it_was_kept(writes, keep, start, limit):
    spool = Spool(keep, Budget(1000))
    for stream, data in writes:
        spool.add(stream, data)
    whole = b"".join(data for which, data in writes if which == 0)
    seen, dropped, gap = spool.counts()[0]
    offset, data = spool.read(0, start, limit)
    assert data == whole[offset : offset + len(data)]
    if start < gap or gap + dropped <= start < seen:
        assert (offset, bool(data)) == (start, True)
    elif start < seen:
        assert offset == gap + dropped


def test_alternating_single_bytes_take_bounded_memory():
    spool = Spool(100_000, Budget(200_000))
    for _ in range(20_000):
        spool.add(0, b"o")
        spool.add(1, b"e")
    assert len(spool._segments) <= MAX_SEGMENTS
    chunks = drain(spool, Cursor(), 1000)
    assert joined(chunks, 0) == b"o" * 20_000
    assert joined(chunks, 1) == b"e" * 20_000


def test_a_released_spool_gives_its_bytes_back():
    budget = Budget(10)
    spool = Spool(10, budget)
    spool.add(0, bytes(10))
    spool.release()
    assert budget.used == 0


@given(st.lists(st.binary(min_size=1, max_size=50), max_size=40), st.integers(1, 60), st.integers(1, 40))
def test_a_conversation_is_handed_over_whole_and_holds_no_more_than_its_limit_and_one_read(pieces, keep, limit):
    budget = Budget(10_000)
    flow, heard = FlowControlledSpool(keep, budget), b""
    for piece in pieces:
        while not flow.room(0):
            offset, data = flow.read(0, len(heard), limit)
            assert offset == len(heard)
            heard += data
            flow.forget(0, len(heard))
        flow.add(0, piece)
        assert budget.used < keep + len(piece)
    while data := flow.read(0, len(heard), limit)[1]:
        heard += data
    flow.forget(0, len(heard) + 5)
    assert (heard, flow.read(0, 0, 10)) == (b"".join(pieces), (len(heard), b""))
    assert flow.counts()[0] == (len(heard), 0, 0)
    flow.release()
    assert budget.used == 0


def test_a_conversations_stderr_keeps_its_end():
    flow = FlowControlledSpool(20, Budget(1000))
    for letter in b"abcdefghijklmnop":
        flow.add(1, bytes([letter]))
    assert flow.read(1, 0, 100) == (6, b"ghijklmnop")
    assert flow.counts()[1] == (16, 6, 0)
    assert flow.after(Cursor(), 10) is None
