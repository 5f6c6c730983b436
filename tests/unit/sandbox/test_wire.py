"""Framing: messages arrive complete, in order and from this connection, or not at all."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codesdk.sandbox.runner.protocol import wire

NONCE = b"0123456789abcdef"
OTHER = b"fedcba9876543210"


def frames(number: int, header: dict, body: bytes = b"", nonce: bytes = NONCE) -> bytes:
    return b"".join(wire.encode(nonce, number, header, body))


def accepted(nonce: bytes = NONCE) -> wire.Decoder:
    decoder = wire.Decoder()
    decoder.accept(nonce)
    return decoder


def read(decoder: wire.Decoder, data: bytes, cut: int = 1 << 16) -> list[wire.Item]:
    found: list[wire.Item] = []
    for start in range(0, len(data), cut):
        for item in decoder.feed(data[start : start + cut]):
            if isinstance(item, wire.Hello):
                decoder.accept(item.nonce)
            found.append(item)
    return found


@given(
    st.lists(st.tuples(st.dictionaries(st.text(), st.integers()), st.binary(max_size=3000)), max_size=5),
    st.integers(1, 500),
)
def test_messages_come_back_however_the_bytes_are_cut(messages, cut):
    data = b"".join(frames(number, header, body) for number, (header, body) in enumerate(messages))
    found = read(accepted(), data, cut)
    assert [(item.number, item.header, item.body) for item in found] == [
        (number, header, body) for number, (header, body) in enumerate(messages)
    ]


def test_a_long_message_is_split_and_put_together():
    body = bytes(range(256)) * 1000
    parts = list(wire.encode(NONCE, 7, {"op": "x"}, body))
    assert len(parts) == 4
    (found,) = read(accepted(), b"".join(parts))
    assert (found.header, found.body) == ({"op": "x"}, body)


def test_fragments_of_two_messages_may_alternate():
    one = list(wire.encode(NONCE, 1, {"n": 1}, bytes(100_000)))
    two = list(wire.encode(NONCE, 2, {"n": 2}, bytes(100_000)))
    found = read(accepted(), b"".join(part for pair in zip(one, two, strict=True) for part in pair))
    assert [item.header["n"] for item in found] == [1, 2]


@settings(max_examples=60)
@given(st.data())
def test_a_hello_is_heard_after_any_piece_of_any_frame(data):
    """A worker died in the middle of a frame; the next one's HELLO must not be swallowed as its payload."""
    old = frames(1, {"op": "start"}, bytes(data.draw(st.integers(0, 70_000))), OTHER)
    cut = data.draw(st.integers(0, len(old)))
    stream = old[:cut] + wire.Hello(NONCE, 2).encode() + frames(5, {"op": "ping"})
    found = read(accepted(OTHER), stream)
    assert isinstance(found[-2], wire.Hello)
    assert (found[-2].nonce, found[-2].generation) == (NONCE, 2)
    assert found[-1].header == {"op": "ping"}
    if cut < len(old):
        assert len(found) == 2  # the half message of the dead worker has not come to life


@given(st.binary(max_size=2000))
def test_noise_before_a_hello_is_discarded(noise):
    found = read(wire.Decoder(), noise.replace(b"\xc4CSH", b"") + wire.Hello(NONCE, 1).encode())
    assert [type(item) for item in found] == [wire.Hello]


@given(st.binary(max_size=3000))
def test_no_bytes_make_the_decoder_fail(noise):
    for decoder in (wire.Decoder(), wire.Decoder(NONCE), accepted()):
        list(decoder.feed(noise))


def test_frames_of_another_connection_are_no_messages():
    assert read(accepted(), frames(1, {"op": "cancel"}, nonce=OTHER)) == []


def test_a_changed_byte_loses_the_frame_and_only_that():
    bad = bytearray(frames(1, {"op": "bad"}))
    bad[-6] ^= 1
    found = read(accepted(), bytes(bad) + frames(2, {"op": "good"}))
    assert [item.header for item in found] == [{"op": "good"}]


def test_a_worker_hears_only_the_ack_of_its_own_nonce():
    decoder = wire.Decoder(NONCE)
    stream = (
        frames(1, {"event": "output"}, b"old", OTHER)
        + wire.Ack(OTHER, 3, True).encode()
        + wire.Ack(NONCE, 4, True).encode()
    )
    (found,) = list(decoder.feed(stream))
    assert isinstance(found, wire.Ack)
    assert (found.nonce, found.generation, found.accepted) == (NONCE, 4, True)


def test_a_message_beyond_the_limit_is_reported_and_thrown_away(monkeypatch):
    monkeypatch.setattr(wire, "MAX_MESSAGE", 100_000)
    found = read(accepted(), frames(1, {}, bytes(300_000)) + frames(2, {"op": "next"}))
    assert isinstance(found[0], wire.Oversize)
    assert found[0].number == 1
    assert [item.header for item in found[1:]] == [{"op": "next"}]


@pytest.mark.parametrize(
    "payload", [b"", b"\0\0", b"\0\0\0\xff{}", b"\0\0\0\2[]", b"\0\0\0\1{", b"\0\1\0\1" + b" " * 65537]
)
def test_a_payload_that_is_no_message_is_malformed(payload):
    with pytest.raises(wire.Malformed):
        wire._parse(1, payload)
