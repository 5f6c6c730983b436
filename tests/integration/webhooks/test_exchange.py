"""One POST against receivers that behave badly."""

from __future__ import annotations

import ipaddress
import socket
import ssl
import threading
import time

import pytest

from codesdk.domain.network.addresses import allow_networks, public_only
from codesdk.webhooks.delivery import Failure
from codesdk.webhooks.destination import destination_of
from codesdk.webhooks.endpoint import InvalidEndpoint
from codesdk.webhooks.http_client import RequestFailed, WebhookClient
from receivers import public_or_listed, receiving, speaking

LOOPBACK = ipaddress.ip_address("127.0.0.1")
HERE = public_or_listed([LOOPBACK])


def exchange(resolve=lambda _: [LOOPBACK], policy=HERE, deadline_s=2.0):
    return WebhookClient(resolve, policy, ssl.create_default_context(), time.monotonic, deadline_s=deadline_s)


def post(port, *, host="receiver.test", scheme="http", **more):
    to = destination_of(f"{scheme}://{host}:{port}/hook?a=1", HERE, allow_http=True)
    return exchange(**more).post(to, b'{"a": 1}', {"content-type": "application/json"})


def failure(port, **more):
    began = time.monotonic()
    with pytest.raises(RequestFailed) as caught:
        post(port, **more)
    assert time.monotonic() - began < 30
    return caught.value.failure


def test_a_receiver_gets_what_was_sent_and_its_answer_counts():
    with receiving() as receiver:
        receiver.answer = lambda _: (202, {"retry-after": "7"}, b"thanks")
        port = int(receiver.url.rpartition(":")[2])
        answered = post(port)
        (got,) = receiver.got
    assert (answered.status, answered.retry_after_s) == (202, 7.0)
    assert (got.path, got.body, got.headers["host"]) == ("/hook?a=1", b'{"a": 1}', f"receiver.test:{port}")


def test_a_redirect_is_an_answer_and_leads_nowhere():
    with receiving() as inner, receiving() as receiver:
        receiver.answer = lambda _: (302, {"location": inner.url}, b"")
        assert post(int(receiver.url.rpartition(":")[2])).status == 302
        assert inner.got == []


def test_nobody_listens():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert failure(port) is Failure.UNREACHABLE


def test_a_receiver_that_never_answers_is_left_at_the_deadline():
    gate = threading.Event()
    with speaking(lambda _: gate.wait(5)) as port:
        assert failure(port, deadline_s=0.3) is Failure.TIMEOUT
        gate.set()


def test_a_receiver_that_says_a_byte_now_and_then_gets_no_longer():
    stop = threading.Event()

    def drip(connection):
        connection.sendall(b"HTTP/1.1 200 OK\r\nx: ")
        while not stop.wait(0.05):
            connection.sendall(b"a")

    with speaking(drip) as port:
        assert failure(port, deadline_s=0.5) is Failure.TIMEOUT
        stop.set()


def test_a_body_without_end_is_not_read_to_its_end():
    def flood(connection):
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            connection.sendall(b"x" * 65536)

    with speaking(flood) as port:
        began = time.monotonic()
        assert post(port, deadline_s=60).status == 200
        assert time.monotonic() - began < 30


def test_a_head_without_end_is_no_answer():
    def flood(connection):
        connection.sendall(b"HTTP/1.1 200 OK\r\n")
        while True:
            connection.sendall(b"x: " + b"y" * 1000 + b"\r\n")

    with speaking(flood) as port:
        assert failure(port) is Failure.NO_ANSWER


@pytest.mark.parametrize(
    "said", [b"", b"\x16\x03\x01garbage\r\n\r\n", b"220 mail.test ESMTP\r\n", b"HTTP/1.1 999999 x\r\n\r\n"]
)
def test_garbage_is_no_answer(said):
    def speak(connection):
        connection.sendall(said)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65536):  # to its end: closed with something unread, a connection is reset
            pass

    with speaking(speak) as port:
        assert failure(port) is Failure.NO_ANSWER


def test_a_certificate_that_nobody_vouches_for_is_refused(tmp_path):
    certificate = self_signed(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)

    def speak(connection):
        context.wrap_socket(connection, server_side=True)

    with speaking(speak) as port:
        assert failure(port, scheme="https") is Failure.TLS


def self_signed(directory):
    from datetime import UTC, datetime, timedelta  # noqa: PLC0415

    from cryptography import x509  # noqa: PLC0415
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "receiver.test")])
    now = datetime.now(UTC)
    built = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    built = built.serial_number(1).not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    signed = built.sign(key, hashes.SHA256())
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ) + signed.public_bytes(serialization.Encoding.PEM)
    path = directory / "receiver.pem"
    path.write_bytes(pem)
    return path


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.0.0.1",
        "169.254.169.254",
        "100.64.0.1",
        "192.168.1.1",
        "::1",
        "fe80::1",
        "fd00::1",
        "64:ff9b::7f00:1",
        "::ffff:127.0.0.1",
        "2002:7f00:1::",
        "0.0.0.0",
    ],
)
def test_a_name_that_leads_inside_is_not_connected_to(address):
    with receiving() as receiver:
        port = int(receiver.url.rpartition(":")[2])
        found = [ipaddress.ip_address("93.184.216.34"), ipaddress.ip_address(address)]
        assert failure(port, resolve=lambda _: found, policy=public_only) is Failure.ADDRESS_REFUSED
        assert receiver.got == []


def test_a_name_is_resolved_once_and_what_was_checked_is_connected_to():
    answers = [[LOOPBACK], [ipaddress.ip_address("10.0.0.1")]]
    with receiving() as receiver:
        assert post(int(receiver.url.rpartition(":")[2]), resolve=lambda _: answers.pop(0)).status == 204
    assert len(answers) == 1


def test_a_name_that_nobody_knows():
    def unknown(_name):
        raise socket.gaierror(-2, "Name or service not known")

    assert failure(1, resolve=unknown) is Failure.NO_SUCH_NAME


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1/",
        "https://[::1]/",
        "https://169.254.169.254/latest/",
        "https://[64:ff9b::a00:1]/",
        "https://0x7f.1/",
        "https://2130706433/",
        "https://127.1/",
        "https://0177.0.0.1/",
        "https://user:pw@a.example/",
        "ftp://a.example/",
        "https:///x",
        "https://a.example/\u202e",
        "https://a.example:99999/",
        "https://a.example/#f",
        "http://a.example/",
        "file:///etc/passwd",
        "https://a.example/a b",
        "https://a.example/\r\nx: y",
        "",
    ],
)
def test_what_is_no_place_to_send_to_is_refused_when_it_is_named(url):
    with pytest.raises(InvalidEndpoint):
        destination_of(url, public_only, allow_http=False)


def test_an_operators_network_may_be_sent_to():
    policy = allow_networks([ipaddress.ip_network("10.20.0.0/16")], public_only)
    assert destination_of("https://10.20.3.4/x", policy, allow_http=False).origin == "https://10.20.3.4"
    with pytest.raises(InvalidEndpoint):
        destination_of("https://10.21.3.4/x", policy, allow_http=False)
