"""Receivers for tests: a real HTTP server with programmable answers, and a real mail server."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.parser import BytesParser
from email.policy import default
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from aiosmtpd.controller import Controller

from codesdk.domain.network.addresses import Address, AddressPolicy, public_only


def public_or_listed(listed: list[Address]) -> AddressPolicy:
    """Allows public addresses and exactly these others."""
    return lambda address: None if address in listed else public_only(address)


@dataclass
class Got:
    """One request."""

    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Receiver:
    """What a test's receiver has had, and what it answers."""

    url: str = ""
    got: list[Got] = field(default_factory=list)
    answer: Callable[[Got], tuple[int, dict[str, str], bytes]] = lambda _: (204, {}, b"")


@contextmanager
def receiving() -> Iterator[Receiver]:
    """A receiver on a loopback port."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", "0")))
            got = Got(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
            receiver.got.append(got)
            status, headers, content = receiver.answer(got)
            self.send_response(status)
            for name, value in {"content-length": str(len(content)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST  # noqa: N815 (the base class's name)

        def log_message(self, *_args: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    receiver.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


@contextmanager
def speaking(say: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server whose every connection is handed to `say`; its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        stopping = threading.Event()

        def accept() -> None:
            while not stopping.is_set():
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    try:
                        say(connection)
                    except OSError:
                        continue

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            stopping.set()
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(5)


@dataclass
class Mailbox:
    """Mail that came in."""

    port: int = 0
    mails: list[EmailMessage] = field(default_factory=list)
    recipients: list[str] = field(default_factory=list)
    refuse: str = ""

    async def handle_RCPT(self, _server: Any, _session: Any, envelope: Any, address: str, _options: Any) -> str:  # noqa: N802
        """A recipient."""
        if self.refuse:
            return self.refuse
        envelope.rcpt_tos.append(address)
        self.recipients.append(address)
        return "250 OK"

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802
        """A mail."""
        self.mails.append(BytesParser(policy=default).parsebytes(envelope.content))
        return "250 taken"


@contextmanager
def mail_server() -> Iterator[Mailbox]:
    """An SMTP server on a loopback port."""
    mailbox = Mailbox()
    with socket.create_server(("127.0.0.1", 0)) as free:
        mailbox.port = free.getsockname()[1]
    controller = Controller(mailbox, hostname="127.0.0.1", port=mailbox.port)
    controller.start()
    try:
        yield mailbox
    finally:
        controller.stop()
