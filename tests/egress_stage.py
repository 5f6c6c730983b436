"""Shared parts of the egress tests: a tool's side of the channel, loopback servers, a certificate authority."""

from __future__ import annotations

import base64
import contextlib
import datetime as dt
import ipaddress
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from codesdk.sandbox.egress.connection_attempt import AttemptPhase, ConnectionAttempt, Reason
from codesdk.sandbox.egress.rules import EgressRule, EgressRules
from codesdk.sandbox.egress.service import EgressService
from codesdk.sandbox.port import Sandbox
from codesdk.sandbox.runner.protocol import mux as channels
from receivers import public_or_listed
from sandboxes import Ran, run

DEADLINE_S = 60.0
LOOPBACK = ipaddress.ip_address("127.0.0.1")
CREDENTIAL = "c0ffee"
AUTHORIZATION = "Basic " + base64.b64encode(f"exec:{CREDENTIAL}".encode()).decode()
OWNER, KEY = "sbx_1", ("call_1", 1)


def rules(*found: EgressRule | dict[str, Any], **limits: Any) -> EgressRules:
    return EgressRules(rules=tuple(EgressRule.model_validate(item) for item in found), **limits)


FETCH = """
import os, sys, urllib.request
try:
    print(urllib.request.urlopen(sys.argv[1], timeout=10).read().decode())
except OSError as error:
    print(type(error).__name__, error)
    raise SystemExit(1)
"""


def fetch(sandbox: Sandbox, url: str, **more: Any) -> Ran:
    """Have a program in a sandbox ask for this URL, as its environment says."""
    return run(sandbox, "python3", "-c", FETCH, url, **more)


class Connection:
    """A tool's connection to the proxy, as the runner would carry it."""

    def __init__(self, tool: Tool, stream: int) -> None:
        self._tool = tool
        self.stream = stream
        self.received = bytearray()
        self.over = False
        self.reset = False

    def send(self, data: bytes) -> None:
        place = 0
        while place < len(data):
            with self._tool.changed:
                room = self._tool.until(lambda: self._tool.channel.room(self.stream) or self.over)
                if self.over:
                    return
                self._tool.channel.send(self.stream, data[place : place + room])
                place += room
            self._tool.push()

    def finish(self) -> None:
        with self._tool.changed:
            self._tool.channel.finish(self.stream)
        self._tool.push()

    def read_until(self, end: bytes) -> bytes:
        """Bytes up to and with `end`, or all until the connection's end."""
        with self._tool.changed:
            self._tool.until(lambda: end in self.received or self.over)
            place = self.received.find(end)
            count = len(self.received) if place < 0 else place + len(end)
            data = bytes(self.received[:count])
            del self.received[:count]
        return data

    def read_all(self) -> bytes:
        with self._tool.changed:
            self._tool.until(lambda: self.over)
            return bytes(self.received)

    def close(self) -> None:
        with self._tool.changed:
            self._tool.channel.reset(self.stream)
            self.over = True
        self._tool.push()


class Tool:
    """The runner's side of the channel, without a runner."""

    def __init__(self, egress: EgressService, owner: str = OWNER) -> None:
        self.channel = channels.Multiplexer(opener=True)
        self.changed = threading.Condition()
        self.connections: dict[int, Connection] = {}
        self.broken: list[str] = []
        self._push = threading.Lock()
        self.carrier = egress.multiplexer(owner, self._receive, self.broken.append)

    def until(self, fact: Callable[[], Any]) -> Any:
        found = self.changed.wait_for(fact, DEADLINE_S)
        assert found, "nothing happened in time"
        return found

    def push(self) -> None:
        while True:
            with self._push:
                with self.changed:
                    block = self.channel.take(60_000)
                if not block:
                    return
                self.carrier.feed(block)

    def _receive(self, block: bytes) -> None:
        with self.changed:
            for event in self.channel.feed(block):
                connection = self.connections[event.stream]
                if isinstance(event, channels.DataReceived):
                    connection.received += event.data
                    self.channel.consumed(event.stream, len(event.data))
                else:
                    connection.over = True
                    connection.reset = isinstance(event, channels.StreamReset)
            self.changed.notify_all()
        self.push()

    def connect(self, key: tuple[str, int] = KEY, credential: str = CREDENTIAL) -> Connection:
        with self.changed:
            stream = self.channel.open(json.dumps([*key, credential]).encode())
            assert stream is not None
            made = self.connections[stream] = Connection(self, stream)
        self.push()
        return made


class Stage:
    """A proxy whose names and addresses the test decides."""

    def __init__(self, names: dict[str, list[str]] | None = None, **options: Any) -> None:
        self.names = names if names is not None else {}
        self.resolved: list[str] = []
        self.attempts: list[ConnectionAttempt] = []
        self._told = threading.Condition()
        self.egress = EgressService(
            self._tell, **{"resolve": self._resolve, "policy": public_or_listed([LOOPBACK]), "first_s": 2.0, **options}
        )
        self.tool = Tool(self.egress)
        self._leases = []

    def _resolve(self, name: str) -> list[Any]:
        self.resolved.append(name)
        return [ipaddress.ip_address(item) for item in self.names.get(name, ["127.0.0.1"])]

    def _tell(self, attempt: ConnectionAttempt) -> None:
        with self._told:
            self.attempts.append(attempt)
            self._told.notify_all()

    def grant(self, found: EgressRules, within: EgressRules | None = None) -> Stage:
        self._leases.append(self.egress.grant(OWNER, KEY, within if within is not None else found, found))
        return self

    def end_exec(self) -> None:
        while self._leases:
            self.egress.end(self._leases.pop())

    def last(self, count: int = 1) -> ConnectionAttempt:
        """The record of the last end of `count`, when there are so many."""
        with self._told:
            assert self._told.wait_for(lambda: len(self.ends) >= count, DEADLINE_S), self.attempts
            return self.ends[count - 1]

    @property
    def ends(self) -> list[ConnectionAttempt]:
        return [item for item in self.attempts if item.phase is not AttemptPhase.OPENED]

    @property
    def opened(self) -> list[ConnectionAttempt]:
        return [item for item in self.attempts if item.phase is AttemptPhase.OPENED]

    def ask(self, text: str | bytes, *, close: bool = False) -> Connection:
        """Send a request; `{auth}` stands for the credential's field."""
        data = text.encode() if isinstance(text, str) else text
        connection = self.tool.connect()
        connection.send(data.replace(b"{auth}", f"Proxy-Authorization: {AUTHORIZATION}".encode()))
        if close:
            connection.finish()
        return connection

    def refused(self, text: str | bytes) -> tuple[Reason, bytes]:
        """Why a request is refused, and what the tool reads; no upstream was reached."""
        count = len(self.ends)
        answer = self.ask(text).read_all()
        end = self.last(count + 1)
        assert end.phase is AttemptPhase.REFUSED, end
        return end.reason, answer

    def connect_tls(self, host: str, port: int) -> Connection:
        """A tunnel for which the proxy has said 200."""
        connection = self.ask(f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n{{auth}}\r\n\r\n")
        answer = connection.read_until(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200 "), answer
        return connection

    def close(self) -> None:
        self.end_exec()
        self.egress.close()


@contextlib.contextmanager
def staged(names: dict[str, list[str]] | None = None, **options: Any) -> Iterator[Stage]:
    made = Stage(names, **options)
    try:
        yield made
    finally:
        made.close()


class Attempts:
    """A proxy for real sandboxes: every name beneath `.test` is loopback; what it records can be waited for."""

    def __init__(self, **options: Any) -> None:
        self.all: list[ConnectionAttempt] = []
        self._told = threading.Condition()
        self.egress = EgressService(
            self._tell, **{"resolve": self._resolve, "policy": public_or_listed([LOOPBACK]), "first_s": 5.0, **options}
        )

    @classmethod
    @contextlib.contextmanager
    def served(cls, **options: Any) -> Iterator[Attempts]:
        made = cls(**options)
        try:
            yield made
        finally:
            made.egress.close()

    @staticmethod
    def _resolve(name: str) -> list[Any]:
        if not name.endswith(".test"):
            raise OSError("no such name")
        return [LOOPBACK]

    def _tell(self, attempt: ConnectionAttempt) -> None:
        with self._told:
            self.all.append(attempt)
            self._told.notify_all()

    def clear(self) -> None:
        with self._told:
            self.all.clear()

    def until(self, fact: Callable[[], Any]) -> None:
        with self._told:
            assert self._told.wait_for(fact, DEADLINE_S), self.all


class Server:
    """Accepts on loopback; each connection is handled on a thread, and what it sent is kept."""

    def __init__(
        self,
        handle: Callable[[socket.socket], None],
        tls: ssl.SSLContext | None = None,
        address: tuple[str, int] = ("127.0.0.1", 0),
    ) -> None:
        self._handle = handle
        self._tls = tls
        self.accepted = 0
        self._listener = socket.create_server(address)
        self.port: int = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._run, daemon=True)]
        self._threads[0].start()
        self._sockets: list[socket.socket] = []

    def _run(self) -> None:
        while True:
            try:
                made, _ = self._listener.accept()
            except OSError:
                return
            self.accepted += 1
            made.settimeout(DEADLINE_S)
            self._sockets.append(made)
            thread = threading.Thread(target=self._serve, args=(made,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, made: socket.socket) -> None:
        with contextlib.suppress(OSError):
            if self._tls is not None:
                made = self._tls.wrap_socket(made, server_side=True)
            with made:
                self._handle(made)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for made in self._sockets:
            with contextlib.suppress(OSError):
                made.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(DEADLINE_S)
        for made in self._sockets:
            made.close()


class HttpServer(Server):
    """Reads one request and answers; `requests` holds the bytes of each."""

    def __init__(
        self, answer: bytes = b"", tls: ssl.SSLContext | None = None, address: tuple[str, int] = ("127.0.0.1", 0)
    ) -> None:
        self.requests: list[bytes] = []
        self.answer = answer or b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
        super().__init__(self._one, tls, address)

    def _one(self, made: socket.socket) -> None:
        data = b""
        while b"\r\n\r\n" not in data:
            part = made.recv(65536)
            if not part:
                break
            data += part
        self.requests.append(data)
        made.sendall(self.answer)


class Authority:
    """Makes certificates for names, and a client context that trusts them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
        self.certificate = self._build("test authority", self._key, authority=True)
        self.path = folder / "authority.pem"
        self.path.write_bytes(self.certificate.public_bytes(serialization.Encoding.PEM))

    def _build(self, host: str, key: Any, *, authority: bool) -> x509.Certificate:
        now = dt.datetime.now(dt.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)]))
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=1))
            .not_valid_after(now + dt.timedelta(days=2))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if not authority:
            builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        return builder.sign(self._key, hashes.SHA256())

    def server(self, host: str) -> ssl.SSLContext:
        key = ec.generate_private_key(ec.SECP256R1())
        path = self._folder / f"{host}.pem"
        path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            + self._build(host, key, authority=False).public_bytes(serialization.Encoding.PEM)
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        return context

    def client(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.path))


def client_hello(host: str | None, alpn: list[str] | None = None) -> bytes:
    """What a real TLS client sends first."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if alpn:
        context.set_alpn_protocols(alpn)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname=host).do_handshake()
    return outgoing.read()


def tls_exchange(connection: Connection, context: ssl.SSLContext, host: str, data: bytes) -> bytes:
    """Speak TLS over a tunnel: send, and read to the end."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname=host)
    received = bytearray()

    def drive(step: Callable[[], Any]) -> Any:
        while True:
            try:
                result = step()
            except ssl.SSLWantReadError:
                result = None
            if outgoing.pending:
                connection.send(outgoing.read())
            if result is not None:
                return result
            with connection._tool.changed:
                connection._tool.until(lambda: connection.received or connection.over)
                incoming.write(bytes(connection.received))
                connection.received.clear()
                if connection.over:
                    incoming.write_eof()

    drive(lambda: tls.do_handshake() or True)
    drive(lambda: tls.write(data))
    while True:
        try:
            part = drive(lambda: tls.read(65536))
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
            break
        if not part:
            break
        received += part
    return bytes(received)
