from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codesdk.sandbox.egress import http_head
from codesdk.sandbox.egress.http_body import Body
from codesdk.sandbox.egress.http_head import BadHead, Framing, HostDiffers, Target


def head(*lines: str) -> bytes:
    return "\r\n".join((*lines, "", "")).encode("latin-1")


def get(*fields: str, target: str = "http://a.example/x?y=1", version: str = "HTTP/1.1") -> http_head.Request:
    return http_head.request(head(f"GET {target} {version}", *fields))


def test_connect_names_host_and_port():
    made = http_head.request(head("CONNECT Packages.EXAMPLE.:443 HTTP/1.1", "Host: packages.example:443"))
    assert (made.target, made.path) == (Target("packages.example", 443), None)


def test_an_absolute_url_is_taken_apart():
    made = get("Host: A.example:80")
    assert (made.target, made.path) == (Target("a.example", 80), "/x?y=1")
    assert get("Host: a.example", target="http://a.example?q").path == "/?q"
    assert get("Host: [2001:db8::1]:8080", target="http://[2001:DB8::1]:8080/").target == Target("2001:db8::1", 8080)


@pytest.mark.parametrize(
    "target",
    [
        "/relative", "*", "https://a.example/", "ftp://a.example/", "//a.example/", "http:///x", "http://", "http:/a.example/",
        "http://user@a.example/", "http://user:pass@a.example/", "http://a.example:/", "http://a.example:99999/",
        "http://a.example:80:80/", "http://a.example\\@b.example/", "http://a.example#b", "http://2130706433/",
        "http://0x7f.1/", "http://[::1%25eth0]/", "http://a%2eexample/", "http://[::1", "http://a.example:0x50/",
    ],
)  # fmt: skip
def test_a_url_that_can_be_read_in_two_ways_is_refused(target):
    with pytest.raises(BadHead):
        get("Host: a.example", target=target)


@pytest.mark.parametrize(
    "target",
    [
        "a.example",
        "a.example:",
        ":443",
        "a.example:0",
        "a.example:65536",
        "http://a.example:443",
        "u@a.example:443",
        "a.example:443/x",
        "[::1]",
        "a,b:443",
        "127.1:443",
    ],
)
def test_connect_to_what_is_no_authority_is_refused(target):
    with pytest.raises(BadHead):
        http_head.request(head(f"CONNECT {target} HTTP/1.1"))


@pytest.mark.parametrize(
    "fields",
    [(), ("Host: b.example",), ("Host: a.example", "Host: a.example"), ("Host: a.example:81",), ("Host: a.example, b.example",),
     ("Host:",), ("Host: a.example@b.example",)],
)  # fmt: skip
def test_a_host_that_says_something_else_is_refused(fields):
    with pytest.raises(BadHead):
        get(*fields)


def test_another_host_is_told_apart_from_a_broken_head():
    with pytest.raises(HostDiffers):
        get("Host: b.example")


@pytest.mark.parametrize(
    "data",
    [
        b"GET http://a.example/ HTTP/1.1\nHost: a.example\n\n",
        b"GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\nX: a\nY: b\r\n\r\n",
        b"GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\nX: a\rY: b\r\n\r\n",
        b"GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\nX: a\0b\r\n\r\n",
        b"GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\nX: a\r\n folded\r\n\r\n",
        b"GET http://a.example/ HTTP/1.1\r\nHost : a.example\r\n\r\n",
        b"GET http://a.example/ HTTP/1.1\r\n Host: a.example\r\n\r\n",
        b"GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n: empty\r\n\r\n",
        b"GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\nno colon\r\n\r\n",
        b"GET  http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
        b"GET http://a.example/ HTTP/2\r\nHost: a.example\r\n\r\n",
        b"GET http://a.example/\r\nHost: a.example\r\n\r\n",
        b"G\tT http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
        b"\r\nGET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
        b"GET http://a.ex\xc3\xa4mple/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
        b"GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n" + b"X: y\r\n" * 200 + b"\r\n",
    ],
)
def test_a_head_that_others_may_read_differently_is_refused(data):
    with pytest.raises(BadHead):
        http_head.request(data)


@pytest.mark.parametrize(
    "fields",
    [
        ("Content-Length: 5", "Transfer-Encoding: chunked"), ("Content-Length: 5", "Content-Length: 5"), ("Content-Length: 5, 5",),
        ("Content-Length: +5",), ("Content-Length: 0x5",), ("Content-Length: -1",), ("Content-Length: ",), ("Content-Length: " + "9" * 30,),
        ("Transfer-Encoding: gzip, chunked",), ("Transfer-Encoding: xchunked",), ("Transfer-Encoding: chunked, chunked",),
        ("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"), ("Transfer-Encoding: identity",), ("Transfer-Encoding: \x0bchunked",),
        ("Content-Length: 5 5",),
    ],
)  # fmt: skip
def test_a_body_of_doubtful_length_is_refused(fields):
    with pytest.raises(BadHead):
        http_head.request_framing(get("Host: a.example", *fields))


def test_the_length_of_a_body():
    assert http_head.request_framing(get("Host: a.example")) == Framing(length=0)
    assert http_head.request_framing(get("Host: a.example", "Content-Length: 12")) == Framing(length=12)
    assert http_head.request_framing(get("Host: a.example", "Transfer-Encoding: Chunked")) == Framing(chunked=True)


def test_fields_of_the_connection_do_not_go_on():
    made = get(
        "Host: a.example", "Connection: close, X-Mine", "X-Mine: 1", "X-Kept: 2", "Proxy-Authorization: Basic eA==",
        "Proxy-Connection: keep-alive", "Keep-Alive: 5", "TE: trailers", "Upgrade: h2c", "HTTP2-Settings: x", "Trailer: X",
    )  # fmt: skip
    assert http_head.forwarded(made) == (("Host", "a.example"), ("X-Kept", "2"))


def test_connection_cannot_take_the_host_away():
    with pytest.raises(BadHead):
        http_head.forwarded(get("Host: a.example", "Connection: Host"))


def test_a_written_request_is_in_origin_form_with_one_host():
    made = get("Host: a.example", "Accept: */*")
    written = http_head.write_request(made, "a.example", http_head.forwarded(made))
    assert written == b"GET /x?y=1 HTTP/1.1\r\nHost: a.example\r\nAccept: */*\r\n\r\n"


@given(st.binary(max_size=300))
def test_any_head_is_a_request_to_one_host_or_refused(data):
    for candidate in (
        data,
        data + b"\r\n\r\n",
        b"GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n" + data + b"\r\n\r\n",
    ):
        try:
            made = http_head.request(candidate)
        except BadHead:
            continue
        again = http_head.write_request(made, "a.example", made.fields) if made.path else b""
        assert again.count(b"\r\n\r\n") == (1 if made.path else 0)


@given(st.binary(max_size=300))
def test_any_response_head_is_read_or_refused(data):
    for candidate in (data, b"HTTP/1.1 200 OK\r\n" + data + b"\r\n\r\n"):
        try:
            made = http_head.response(candidate)
            http_head.response_framing(made, "GET")
            http_head.forwarded(made)
        except BadHead:
            pass


# -- bodies -----------------------------------------------------------------------------------------------------------


def chunked(parts: list[bytes]) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts if part) + b"0\r\n\r\n"


@given(st.lists(st.binary(max_size=50), max_size=5), st.lists(st.integers(1, 20), min_size=1, max_size=50))
def test_a_chunked_body_passes_whole_in_any_pieces(parts, sizes):
    data, body, out, place, turn = chunked(parts), Body(Framing(chunked=True)), b"", 0, 0
    while place < len(data):
        size = sizes[turn % len(sizes)]
        out += body.feed(data[place : place + size])
        place, turn = place + size, turn + 1
    assert body.over
    assert out == data


@pytest.mark.parametrize(
    "data",
    [
        b"5;ext=1\r\nhello\r\n0\r\n\r\n", b"5\nhello\n0\n\n", b"5\r\nhello!\r\n0\r\n\r\n", b"-5\r\n", b"0x5\r\n", b" 5\r\n", b"\r\n",
        b"5 \r\nhello\r\n", b"fffffffff\r\n", b"0\r\nX-Trailer: 1\r\n\r\n", b"0\r\n\r\nGET http://b.example/ HTTP/1.1\r\n",
        b"5\r\nhelloX\r\n",
    ],
)  # fmt: skip
def test_chunks_that_hide_something_are_refused(data):
    with pytest.raises(BadHead):
        Body(Framing(chunked=True)).feed(data)


def test_a_second_request_behind_the_body_is_refused():
    body = Body(Framing(length=5))
    assert body.feed(b"hello") == b"hello"
    assert body.over
    with pytest.raises(BadHead):
        body.feed(b"G")


def test_bytes_behind_a_response_are_thrown_away():
    body = Body(Framing(length=5), drop_surplus=True)
    assert body.feed(b"helloHTTP/1.1 200 OK") == b"hello"
    assert body.feed(b"more") == b""


@given(st.binary(max_size=200))
def test_what_passes_of_a_chunked_body_is_a_prefix_of_what_came(data):
    body = Body(Framing(chunked=True))
    with contextlib.suppress(BadHead):
        assert data.startswith(body.feed(data))
