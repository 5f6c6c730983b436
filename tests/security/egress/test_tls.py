"""TLS through the proxy: forwarded unread, to the host that the ClientHello names."""

from __future__ import annotations

import struct
import time

import pytest

from codesdk.sandbox.egress.connection_attempt import AttemptPhase, Reason
from egress_stage import HttpServer, Server, client_hello, rules, staged, tls_exchange


@pytest.fixture
def shop(make_server, authority):
    return make_server(HttpServer, tls=authority.server("a.example"))


def tls(server, **more):
    return rules({"host": "a.example", "ports": [server.port], **more})


def with_ech(hello: bytes) -> bytes:
    """The same ClientHello with an encrypted_client_hello extension."""
    message = bytearray(hello[5:])
    place = 4 + 2 + 32
    place += 1 + message[place]
    place += 2 + int.from_bytes(message[place : place + 2], "big")
    place += 1 + message[place]
    added = struct.pack(">HH", 0xFE0D, 4) + bytes(4)
    length = int.from_bytes(message[place : place + 2], "big") + len(added)
    message[place : place + 2] = length.to_bytes(2, "big")
    message += added
    message[1:4] = (len(message) - 4).to_bytes(3, "big")
    return struct.pack(">BHH", 22, 0x0301, len(message)) + bytes(message)


def test_tls_goes_from_end_to_end_and_is_recorded(stage, shop, authority):
    stage.grant(tls(shop))
    connection = stage.connect_tls("A.example.", shop.port)
    answer = tls_exchange(connection, authority.client(), "a.example", b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n")
    assert answer.endswith(b"ok")
    connection.finish()
    end = stage.last()
    assert (end.phase, end.host, end.address) == (AttemptPhase.CLOSED, "a.example", "127.0.0.1")
    assert end.bytes_up > 300
    assert end.bytes_down > 500


def test_a_client_hello_for_another_host_is_refused_before_a_byte_passes(stage, shop):
    stage.grant(tls(shop))
    connection = stage.connect_tls("a.example", shop.port)
    connection.send(client_hello("evil.example"))
    connection.read_all()
    end = stage.last()
    assert (end.phase, end.reason, end.bytes_up) == (AttemptPhase.REFUSED, Reason.SNI_DIFFERS, 0)
    assert connection.reset


def test_a_fragmented_client_hello_is_put_together(stage, shop):
    stage.grant(tls(shop))
    connection = stage.connect_tls("a.example", shop.port)
    message = client_hello("evil.example")[5:]
    for place in range(0, len(message), 7):
        part = message[place : place + 7]
        connection.send(struct.pack(">BHH", 22, 0x0301, len(part)) + part)
    assert stage.last().reason is Reason.SNI_DIFFERS


def test_a_client_hello_byte_by_byte_passes(stage, shop):
    stage.grant(tls(shop))
    connection = stage.connect_tls("a.example", shop.port)
    for byte in client_hello("a.example"):
        connection.send(bytes([byte]))
    assert connection.read_until(b"\x16\x03\x03")  # the server answers
    connection.close()
    assert stage.last().phase is AttemptPhase.CLOSED


def test_a_client_hello_without_a_name_is_refused_unless_the_rule_says_so(stage, shop):
    stage.grant(tls(shop))
    stage.connect_tls("a.example", shop.port).send(client_hello(None))
    assert stage.last().reason is Reason.SNI_MISSING


def test_a_rule_may_allow_a_client_hello_without_a_name(stage, shop):
    stage.grant(tls(shop, allow_missing_sni=True))
    connection = stage.connect_tls("a.example", shop.port)
    connection.send(client_hello(None))
    assert connection.read_until(b"\x16\x03\x03")
    connection.close()
    assert stage.last().phase is AttemptPhase.CLOSED


def test_an_encrypted_client_hello_is_refused_unless_the_rule_says_so(stage, shop):
    stage.grant(tls(shop))
    stage.connect_tls("a.example", shop.port).send(with_ech(client_hello("a.example")))
    assert stage.last().reason is Reason.ENCRYPTED_HELLO


def test_a_rule_that_allows_encrypted_hellos_still_compares_the_outer_name(stage, shop):
    stage.grant(tls(shop, allow_ech=True))
    stage.connect_tls("a.example", shop.port).send(with_ech(client_hello("front.example")))
    assert stage.last().reason is Reason.SNI_DIFFERS


@pytest.mark.parametrize(
    "first", [b"SSH-2.0-x\r\n", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x00" * 10, b"\x16\x03\x01\x00\x00"]
)
def test_what_is_no_tls_does_not_pass_a_tunnel(stage, shop, first):
    stage.grant(tls(shop))
    stage.connect_tls("a.example", shop.port).send(first)
    end = stage.last()
    assert (end.reason, end.bytes_up) == (Reason.NOT_TLS, 0)


def test_a_client_hello_that_drips_is_given_up(shop):
    with staged(first_s=0.4) as stage:
        stage.grant(tls(shop))
        connection = stage.connect_tls("a.example", shop.port)
        for byte in client_hello("a.example"):
            connection.send(bytes([byte]))
            if stage.ends:
                break
            time.sleep(0.02)
        assert stage.last().reason is Reason.SLOW


def test_connect_with_another_host_field_is_refused(stage, shop):
    stage.grant(tls(shop))
    text = f"CONNECT a.example:{shop.port} HTTP/1.1\r\nHost: b.example:{shop.port}\r\n{{auth}}\r\n\r\n"
    assert stage.refused(text)[0] is Reason.HOST_DIFFERS


def test_connect_with_a_body_is_refused(stage, shop):
    stage.grant(tls(shop))
    text = f"CONNECT a.example:{shop.port} HTTP/1.1\r\nTransfer-Encoding: chunked\r\n{{auth}}\r\n\r\n"
    assert stage.refused(text)[0] is Reason.BAD_REQUEST


def test_connect_to_another_port_or_in_another_protocol_is_refused(stage, shop):
    stage.grant(tls(shop))
    assert stage.refused("CONNECT a.example:22 HTTP/1.1\r\n{auth}\r\n\r\n")[0] is Reason.NOT_ALLOWED
    plain = f"GET http://a.example:{shop.port}/ HTTP/1.1\r\nHost: a.example:{shop.port}\r\n{{auth}}\r\n\r\n"
    assert stage.refused(plain)[0] is Reason.NOT_ALLOWED


def test_large_transfers_both_ways_arrive_whole_through_a_slow_reader(stage, make_server):
    size = 3_000_000
    up = bytearray()

    def echo(made):
        while len(up) < size:
            up.extend(made.recv(65536))
        made.sendall(bytes(reversed(up)))

    server = make_server(Server, echo)
    stage.grant(tls(server))
    connection = stage.connect_tls("a.example", server.port)
    hello = client_hello("a.example")
    data = hello + bytes(index % 251 for index in range(size - len(hello)))
    connection.send(data)
    assert connection.read_all() == data[::-1]
    connection.finish()
    end = stage.last()
    assert (end.bytes_up, end.bytes_down) == (size, size)
