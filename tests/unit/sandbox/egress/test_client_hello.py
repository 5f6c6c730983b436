from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codesdk.sandbox.egress.client_hello import MAX_HELLO, ClientHello, ClientHelloParser, NotTls
from egress_stage import client_hello


def record(payload: bytes, kind: int = 22) -> bytes:
    return struct.pack(">BHH", kind, 0x0301, len(payload)) + payload


def extension(kind: int, data: bytes) -> bytes:
    return struct.pack(">HH", kind, len(data)) + data


def server_name(*names: bytes, kind: int = 0) -> bytes:
    entries = b"".join(struct.pack(">BH", kind, len(name)) + name for name in names)
    return extension(0, struct.pack(">H", len(entries)) + entries)


def message(extensions: bytes, *, session: bytes = b"", suites: bytes = b"\x13\x01", after: bytes = b"") -> bytes:
    body = (
        b"\x03\x03"
        + bytes(32)
        + bytes([len(session)])
        + session
        + struct.pack(">H", len(suites))
        + suites
        + b"\x01\x00"
    )
    body += struct.pack(">H", len(extensions)) + extensions + after
    return b"\x01" + len(body).to_bytes(3, "big") + body


def read(data: bytes) -> ClientHello | None:
    return ClientHelloParser().feed(data)


def test_a_real_client_hello_names_its_host():
    hello = read(client_hello("packages.example", ["h2", "http/1.1"]))
    assert hello == ClientHello("packages.example", encrypted=False, alpn=("h2", "http/1.1"))


def test_a_real_client_hello_without_a_name_says_none():
    assert read(client_hello(None)).server_name is None


@given(st.data())
def test_any_fragmentation_gives_the_same_answer(data):
    whole = message(server_name(b"packages.example"))
    cuts = sorted(data.draw(st.sets(st.integers(1, len(whole) - 1), max_size=12)))
    stream = b"".join(record(whole[a:b]) for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True))
    collector, found = ClientHelloParser(), None
    place = 0
    while place < len(stream):
        assert found is None
        size = data.draw(st.integers(1, 40))
        found = collector.feed(stream[place : place + size])
        place += size
    assert found is not None
    assert found.server_name == "packages.example"
    assert bytes(collector.seen) == stream


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"SSH-2.0-OpenSSH\r\n",
        b"\x80\x2e\x01\x00\x02",  # SSL 2
        record(b"\x01\x00", kind=21),
        record(b"\x02" + bytes(20)),
        struct.pack(">BHH", 22, 0x0301, 0),
        struct.pack(">BHH", 22, 0x0301, 20_000),
        record(b"\x01" + (MAX_HELLO + 1).to_bytes(3, "big")),
        record(message(server_name(b"a.example")) + b"\x01"),
        record(message(server_name(b"a.example"), after=b"x")),
        record(message(server_name(b"a.example", b"b.example"))),
        record(message(server_name(b"a.example") + server_name(b"b.example"))),
        record(message(server_name(b"a.example", kind=1))),
        record(message(server_name("ä.example".encode()))),
        record(message(extension(0, b"\x00"))),
        record(message(extension(0, b""))),
        record(message(struct.pack(">HH", 0, 99))),
        record(message(b"", suites=b"")),
        record(message(b"", suites=b"\x13")),
        record(message(b"", session=bytes(33))),
    ],
)  # fmt: skip
def test_what_is_no_client_hello_or_an_ambiguous_one_is_refused(data):
    with pytest.raises(NotTls):
        read(data)


def test_another_record_between_two_fragments_is_refused():
    whole = message(server_name(b"a.example"))
    with pytest.raises(NotTls):
        read(record(whole[:10]) + record(b"\x01\x00", kind=21) + record(whole[10:]))


@pytest.mark.parametrize("kind", [0xFE0D, 0xFFCE])
def test_an_encrypted_client_hello_is_noticed(kind):
    hello = read(record(message(server_name(b"public.example") + extension(kind, b"\x00" * 8))))
    assert hello == ClientHello("public.example", encrypted=True)


def test_a_hello_that_never_ends_is_given_up():
    collector = ClientHelloParser()
    first = record(b"\x01\x00\xff\xff" + bytes(100))
    assert collector.feed(first) is None
    with pytest.raises(NotTls):
        collector.feed(record(bytes(1)) * (MAX_HELLO // 4))


@given(st.binary(max_size=400))
def test_any_bytes_are_a_hello_or_refused_or_incomplete(data):
    for candidate in (data, record(data) if data else b"", record(b"\x01" + len(data).to_bytes(3, "big") + data)):
        with contextlib.suppress(NotTls):
            read(candidate)
