"""Remote MCP servers over streamable HTTP, with checked addresses and the tenant's secrets as headers."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import httpx2
from mcp.client.streamable_http import streamable_http_client

from codesdk.domain.clock import Clock
from codesdk.domain.ids import SessionId, TenantId
from codesdk.domain.network.addresses import AddressPolicy, Networks, allow_networks
from codesdk.domain.network.hostnames import parse_address
from codesdk.domain.network.resolver import Resolve, public_and_remote, system_resolve
from codesdk.registry import Source
from codesdk.sources.faults import SourceUnavailable
from codesdk.sources.servers.server import StartedServer
from codesdk.sources.transport.framing import MAX_LINE, MAX_MESSAGES, RateLimit
from codesdk.sources.transport.outbound_http import EVENT_LINES, OutboundTransport, WithinRate

CONNECT_S = 10.0
"""Seconds to connect, and to write part of a request."""
READ_TIMEOUT_S = 300.0
"""Seconds between bytes of a response; a call's own timeout is usually shorter."""
SecretLookup = Callable[[str, str], str | None]
"""(tenant's id, secret's name): the value, or None. Called on a thread."""


class RemoteStarter:
    """A `Starter` for sources with a `url`. Safe to use from the worker's threads."""

    def __init__(
        self,
        *,
        resolve: Resolve,
        policy: AddressPolicy,
        own: Networks,
        tls: ssl.SSLContext,
        secrets: SecretLookup,
        clock: Clock,
    ) -> None:
        """`policy`: the allowed addresses; `own`: the operator's networks, where plain `http` is allowed."""
        self._resolve = resolve
        self._policy = policy
        self._own = own
        self._tls = tls
        self._secrets = secrets
        self._clock = clock

    def begin(self, source: Source, serves: SessionId | None, tenant: TenantId) -> StartedServer:
        """Prepare a connection for the tenant; connects on first use.

        Raises:
            SourceUnavailable: it is `http` outside of the operator's networks, or a secret is missing.
        """
        del serves
        url = httpx2.URL(source.manifest.url or "")
        self._check(source.name, url)
        headers = {
            each.header: each.prefix + self._secret(source, tenant, each.secret) for each in source.manifest.headers
        }
        transport = partial(OutboundTransport, url, self._resolve, self._policy, self._tls)
        return StartedServer(partial(_open_streams, url, headers, transport, self._clock.monotonic), lambda: None)

    def _check(self, name: str, url: httpx2.URL) -> None:
        if url.scheme == "https":
            return
        address = parse_address(url.host)
        if address is None or not any(address in network for network in self._own):
            advice = "Give an https:// URL, or an address in CODESDK_SOURCE_NETWORKS."
            raise SourceUnavailable(name, "is not reached by https, so its traffic could be changed on the way", advice)

    def _secret(self, source: Source, tenant: TenantId, name: str) -> str:
        value = self._secrets(tenant, name)
        if value is None:
            raise SourceUnavailable(source.name, f"needs the secret `{name}`, which this tenant does not have")
        return value


def remote_starter(
    networks: Networks, secrets: SecretLookup, clock: Clock, tls: ssl.SSLContext | None = None
) -> RemoteStarter:
    """A starter with the system's resolver and certificates. `networks`: the operator's own."""
    return RemoteStarter(
        resolve=system_resolve,
        policy=allow_networks(networks, public_and_remote),
        own=networks,
        tls=tls or ssl.create_default_context(),
        secrets=secrets,
        clock=clock,
    )


@asynccontextmanager
async def _open_streams(
    url: httpx2.URL,
    headers: dict[str, str],
    transport: Callable[..., OutboundTransport],
    monotonic: Callable[[], float],
    on_end: Callable[[str], None],
) -> AsyncIterator[Any]:
    """Open the client streams for the block; requests connect as needed. Ends by itself only if the server sends too much."""
    within_rate = _rate_check(monotonic, on_end)
    timeouts = httpx2.Timeout(CONNECT_S, read=READ_TIMEOUT_S)
    async with (
        httpx2.AsyncClient(
            transport=transport(within_rate=within_rate), headers=headers, timeout=timeouts, trust_env=False
        ) as client,
        # No DELETE at the end: it could block for the read timeout, and servers expire idle sessions anyway.
        streamable_http_client(
            str(url), http_client=client, max_sse_event_size=MAX_LINE, terminate_on_close=False
        ) as streams,
    ):
        yield streams


def _rate_check(monotonic: Callable[[], float], on_end: Callable[[str], None]) -> WithinRate:
    """A shared rate limit for all streams of a connection, which ends it when exceeded."""
    pace = RateLimit(messages=EVENT_LINES * MAX_MESSAGES)

    def within_rate(size: int, lines: int) -> bool:
        kept = pace.keeps(size, monotonic(), lines)
        if not kept:
            on_end("sends more than can be processed")
        return kept

    return within_rate
