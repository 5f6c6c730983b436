from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codesdk.sources.servers.progress_lines import MAX_BYTES, MIN_GAP_S, ProgressLines
from codesdk.sources.transport.framing import LineBuffer, RateLimit, ServerMisbehaved, parse_message


@given(st.lists(st.binary(max_size=30)), st.lists(st.integers(1, 9)))
def test_lines_are_the_same_however_the_bytes_come(texts, sizes):
    whole = b"".join(text.replace(b"\n", b"") + b"\n" for text in texts)
    lines, found, place = LineBuffer(), [], 0
    for size in [*sizes, len(whole) + 1]:
        found += lines.feed(whole[place : place + size])
        place += size
    assert found == [text.replace(b"\n", b"") for text in texts]


@pytest.mark.parametrize("data", [b"x" * 11, b"x" * 11 + b"\n", b"y\n" + b"x" * 11])
def test_a_line_beyond_the_limit_is_unbearable(data):
    with pytest.raises(ServerMisbehaved):
        LineBuffer(10).feed(data)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"hello",
        b"\xff\xfe",
        b"[]",
        b"{}",
        b'{"jsonrpc": "1.0", "id": 1, "result": {}}',
        b'{"jsonrpc":"2.0","id":1,"result":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001,
        b"[" * 100_000,
        b'{"jsonrpc":"2.0","method":"x","params":"\xed\xa0\x80"}',
    ],
)
def test_what_is_no_message_is_none(line):
    assert parse_message(line) is None


def test_a_message_is_one():
    assert parse_message(b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}')


def test_the_pace_holds_in_every_window_and_recovers():
    pace = RateLimit(messages=3, size=100, window_s=10)
    assert [pace.keeps(10, now) for now in (0, 1, 2, 3)] == [True, True, True, False]
    assert pace.keeps(10, 50)
    assert not pace.keeps(95, 51)


@pytest.mark.anyio
async def test_progress_is_thinned_and_bounded():
    now = [0.0]
    progress = ProgressLines(lambda: now[0])
    for step in range(10_000):
        now[0] += MIN_GAP_S / 10
        await progress.report(step, None, "x" * 1000 + "\nnext line")
    progress.over()
    lines = list(progress.lines())
    assert all(chunk.data.count(b"\n") == 1 for chunk in lines)
    assert sum(len(chunk.data) for chunk in lines) < MAX_BYTES + 1000
    assert progress.counted.bytes == lines[-1].offset + len(lines[-1].data)
