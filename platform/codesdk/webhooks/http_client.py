"""Sends one POST to a checked address: the name is resolved once, and redirects are never followed.

Common HTTP clients resolve names themselves, after any check. Here the socket is connected to the checked address, and
h11 runs on top of it. One deadline covers the whole exchange, so that a slow receiver costs no more than a dead one.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import h11

from codesdk.domain.network.addresses import AddressPolicy
from codesdk.domain.network.resolver import AddressRefused, Resolve, dial
from codesdk.webhooks.delivery import Failure
from codesdk.webhooks.destination import Destination

DEADLINE_S = 15.0
"""Seconds from connecting to the end of the response headers (Standard Webhooks recommends 15 to 30)."""
MAX_HEAD = 16 * 1024
MAX_BODY = 64 * 1024
"""Bytes of a response body that are read and discarded, so that the receiver's write is not cut off."""


@dataclass(frozen=True)
class WebhookResponse:
    """The receiver's response."""

    status: int
    retry_after_s: float | None = None


class RequestFailed(Exception):
    """No response. The sender turns it into the attempt's failure."""

    def __init__(self, failure: Failure, detail: str) -> None:
        super().__init__(detail)
        self.failure = failure
        self.detail = detail


class WebhookClient:
    """Safe to use from any thread."""

    def __init__(
        self,
        resolve: Resolve,
        policy: AddressPolicy,
        tls: ssl.SSLContext,
        monotonic: Callable[[], float],
        *,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        self._resolve = resolve
        self._policy = policy
        self._tls = tls
        self._monotonic = monotonic
        self._deadline_s = deadline_s

    def post(self, to: Destination, body: bytes, headers: Mapping[str, str]) -> WebhookResponse:
        """POST `body`.

        Raises:
            RequestFailed: with the reason.
        """
        ends = self._monotonic() + self._deadline_s
        try:
            with self._connect(to, ends) as channel:
                return self._exchange(channel, to, body, headers, ends)
        except TimeoutError as error:
            raise RequestFailed(Failure.TIMEOUT, f"no answer within {self._deadline_s:g} s") from error
        except ssl.SSLError as error:
            raise RequestFailed(Failure.TLS, f"TLS: {error.reason or type(error).__name__}") from error
        except OSError as error:
            raise RequestFailed(Failure.UNREACHABLE, error.strerror or type(error).__name__) from error

    def _connect(self, to: Destination, ends: float) -> contextlib.closing[socket.socket]:
        tls = self._tls if to.tls else None
        try:
            made = dial(to.host, to.port, self._resolve, self._policy, left=lambda: self._remaining(ends), tls=tls)
        except AddressRefused as refused:
            why = Failure.NO_SUCH_NAME if refused.unknown else Failure.ADDRESS_REFUSED
            raise RequestFailed(why, str(refused)) from refused
        return contextlib.closing(made)

    def _exchange(
        self, channel: socket.socket, to: Destination, body: bytes, headers: Mapping[str, str], ends: float
    ) -> WebhookResponse:
        protocol = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD)
        own = {"host": to.origin.partition("://")[2], "content-length": str(len(body)), "connection": "close"}
        try:
            head = h11.Request(method="POST", target=to.path, headers=list({**headers, **own}.items()))
            self._send(channel, protocol.send(head) or b"", ends)
            self._send(
                channel, (protocol.send(h11.Data(data=body)) or b"") + (protocol.send(h11.EndOfMessage()) or b""), ends
            )
            for event in self._events(channel, protocol, ends):
                if isinstance(event, h11.Response):
                    self._drain(channel, protocol, ends)
                    return WebhookResponse(event.status_code, _retry_after(event))
        except h11.ProtocolError as error:
            raise RequestFailed(Failure.NO_ANSWER, "the answer is not HTTP") from error
        raise RequestFailed(Failure.NO_ANSWER, "the connection ended without an answer")

    def _send(self, channel: socket.socket, content: bytes, ends: float) -> None:
        channel.settimeout(self._remaining(ends))  # covers the whole sendall
        channel.sendall(content)

    def _events(self, channel: socket.socket, protocol: h11.Connection, ends: float) -> Iterator[object]:
        while True:
            event = protocol.next_event()
            if event is h11.NEED_DATA:
                channel.settimeout(self._remaining(ends))
                received = channel.recv(16 * 1024)
                protocol.receive_data(received)
                if not received and protocol.their_state is not h11.DONE and protocol.next_event() is h11.NEED_DATA:
                    return
            elif event is h11.PAUSED or isinstance(event, (h11.EndOfMessage, h11.ConnectionClosed)):
                return
            else:
                yield event

    def _drain(self, channel: socket.socket, protocol: h11.Connection, ends: float) -> None:
        """Read and discard the rest of the response, up to `MAX_BODY`."""
        got = 0
        with contextlib.suppress(OSError, h11.ProtocolError):
            for event in self._events(channel, protocol, ends):
                got += len(event.data) if isinstance(event, h11.Data) else 0
                if got > MAX_BODY:
                    return

    def _remaining(self, ends: float) -> float:
        left = ends - self._monotonic()
        if left <= 0:
            raise TimeoutError
        return left


def _retry_after(response: h11.Response) -> float | None:
    value = next((value for name, value in response.headers if name == b"retry-after"), b"")
    return float(value) if value.isdigit() and len(value) < 7 else None  # noqa: PLR2004 (days; dates are not read)
