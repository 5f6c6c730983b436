"""HTTP transport to remote servers: one origin, every resolved address checked, responses bounded.

An HTTP client normally resolves names itself, after any check. This backend connects to the checked addresses, as webhooks
and the egress proxy do.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable, Iterable, Sequence

import httpcore2
import httpx2
from anyio import to_thread

from codesdk.domain.network import hostnames
from codesdk.domain.network.addresses import AddressPolicy
from codesdk.domain.network.hostnames import Address, parse_address
from codesdk.domain.network.resolver import Resolve

MAX_ADDRESSES_TRIED = 3
"""Addresses tried per name."""
MAX_RESPONSE_BYTES = 8 * 1024 * 1024
"""Bytes of a response that is not an event stream; of streams, each event is bounded."""
EVENT_LINES = 8
"""Lines per event that servers send at most."""
_REQUEST_COST, _RECONNECT_COST = EVENT_LINES, 20 * EVENT_LINES
"""Cost of a request in lines, and of a stream reconnect, whose interval the server sets."""
_EVENT_STREAM = "text/event-stream"
WithinRate = Callable[[int, int], bool]
"""(bytes, lines) received: returns whether they are within the rate limit."""


class AddressRefused(httpcore2.ConnectError):
    """The address policy forbids the address."""


class CheckedBackend(httpcore2.AsyncNetworkBackend):
    """Connects only to checked addresses."""

    def __init__(self, resolve: Resolve, policy: AddressPolicy) -> None:
        self._resolve = resolve
        self._policy = policy
        self._plain = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 (the backend's signature)
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Connect to one of the name's addresses, after checking all of them.

        Raises:
            AddressRefused: an address is forbidden. ConnectError: there is none, or none answers.
        """
        found = await self._addresses(host)
        for address in found:
            if why := self._policy(address):
                # One private address among public ones looks like DNS rebinding: use none of them.
                raise AddressRefused(f"{host} leads to {address}: {why}")
        error: Exception = httpcore2.ConnectError(f"{host} has no address")
        for address in found[:MAX_ADDRESSES_TRIED]:
            try:
                return await self._plain.connect_tcp(str(address), port, timeout, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as unreachable:
                error = unreachable
        raise error

    async def _addresses(self, host: str) -> Sequence[Address]:
        literal = parse_address(hostnames.canonical_host(host))
        if literal is not None:
            return (literal,)
        try:
            return await to_thread.run_sync(self._resolve, host, abandon_on_cancel=True)
        except (OSError, UnicodeError) as error:
            raise httpcore2.ConnectError(f"{host} cannot be resolved") from error


class OutboundTransport(httpx2.AsyncHTTPTransport):
    """Sends requests to one origin only."""

    def __init__(
        self,
        origin: httpx2.URL,
        resolve: Resolve,
        policy: AddressPolicy,
        tls: ssl.SSLContext,
        *,
        within_rate: WithinRate,
    ) -> None:
        """`within_rate`: counts all bytes received, and each request."""
        super().__init__(verify=tls, trust_env=False)
        self._origin = origin
        self._within_rate = within_rate
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=tls, network_backend=CheckedBackend(resolve, policy), max_connections=32, keepalive_expiry=30.0
        )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request to the origin.

        Raises:
            ConnectError: it is for another origin, or connecting failed. ReadError: the response is compressed, or too large.
        """
        wanted = (request.url.scheme, request.url.host, request.url.port)
        if wanted != (self._origin.scheme, self._origin.host, self._origin.port):
            raise httpx2.ConnectError(f"{request.url.host} is not where this server is", request=request)
        if not self._within_rate(0, _RECONNECT_COST if request.method == "GET" else _REQUEST_COST):
            raise _too_much(request)
        request.headers["accept-encoding"] = "identity"
        response = await super().handle_async_request(request)
        if response.headers.get("content-encoding", "identity").strip().lower() != "identity":
            await response.aclose()  # limits count wire bytes; decompressed, they could be a thousand times as many
            raise httpx2.ReadError("an encoded response, which was not requested", request=request)
        assert isinstance(response.stream, httpx2.AsyncByteStream)  # noqa: S101 (an async transport returns one)
        is_events = response.headers.get("content-type", "").lower().startswith(_EVENT_STREAM)
        response.stream = _BoundedBody(response.stream, request, self._within_rate, is_events=is_events)
        return response


class _BoundedBody(httpx2.AsyncByteStream):
    """A body that fails beyond its size or rate limit."""

    def __init__(
        self, inner: httpx2.AsyncByteStream, request: httpx2.Request, within_rate: WithinRate, *, is_events: bool
    ) -> None:
        self._inner = inner
        self._request = request
        self._within_rate = within_rate
        self._is_events = is_events

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield chunks."""
        size = 0
        async for piece in self._inner:
            size += len(piece)
            if size > MAX_RESPONSE_BYTES and not self._is_events:
                raise httpx2.ReadError(f"an answer of more than {MAX_RESPONSE_BYTES} bytes", request=self._request)
            if not self._within_rate(len(piece), piece.count(b"\n") + piece.count(b"\r") if self._is_events else 0):
                raise _too_much(self._request)
            yield piece

    async def aclose(self) -> None:
        """Close the body."""
        await self._inner.aclose()


def _too_much(request: httpx2.Request) -> httpx2.ReadError:
    return httpx2.ReadError("more than can be taken", request=request)
