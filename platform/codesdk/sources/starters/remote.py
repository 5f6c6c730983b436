"""Servers that are elsewhere: spoken to over streamable HTTP, through the gate, with the tenant's secrets as headers."""

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
from codesdk.sources.transport.framing import MAX_LINE
from codesdk.sources.transport.outbound_http import EVENT_LINES, OutboundTransport, WithinRate
from codesdk.sources.transport.rate_limit import MAX_MESSAGES, RateLimit

CONNECT_S = 10.0
"""Seconds for a connection, and for a piece of a request to be taken."""
READ_TIMEOUT_S = 300.0
"""Seconds in which an answer may say nothing: longer than any progress is apart. A call's own limit comes first."""
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
        """`policy`: which addresses are connected to; `own`: the operator's networks, where `http` will do."""
        self._resolve = resolve
        self._policy = policy
        self._own = own
        self._tls = tls
        self._secrets = secrets
        self._clock = clock

    def begin(self, source: Source, serves: SessionId | None, tenant: TenantId) -> StartedServer:
        """How to speak to it for that tenant; nothing is connected yet.

        Raises:
            SourceUnavailable: it is `http` and not in the operator's networks, or a secret is not there.
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
            raise SourceUnavailable(name, "is not reached by https, so anybody on the way could change it", advice)

    def _secret(self, source: Source, tenant: TenantId, name: str) -> str:
        value = self._secrets(tenant, name)
        if value is None:
            raise SourceUnavailable(source.name, f"needs the secret `{name}`, which this tenant has not")
        return value


def remote_starter(
    networks: Networks, secrets: SecretLookup, clock: Clock, tls: ssl.SSLContext | None = None
) -> RemoteStarter:
    """With this machine's resolver and certificates. `networks`: of the operator's own."""
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
    """The conversation, while the block lasts; each request connects anew where it must.

    It ends by itself only where the server says too much.
    """
    within_rate = _rate_check(monotonic, on_end)
    timeouts = httpx2.Timeout(CONNECT_S, read=READ_TIMEOUT_S)
    async with (
        httpx2.AsyncClient(
            transport=transport(within_rate=within_rate), headers=headers, timeout=timeouts, trust_env=False
        ) as client,
        # No farewell: it would wait as long as an answer may, and a server forgets idle sessions by itself.
        streamable_http_client(
            str(url), http_client=client, max_sse_event_size=MAX_LINE, terminate_on_close=False
        ) as streams,
    ):
        yield streams


def _rate_check(monotonic: Callable[[], float], on_end: Callable[[str], None]) -> WithinRate:
    """Counts all that comes in one conversation, on whichever of its streams, and ends it beyond the pace."""
    pace = RateLimit(messages=EVENT_LINES * MAX_MESSAGES)

    def within_rate(size: int, lines: int) -> bool:
        kept = pace.keeps(size, monotonic(), lines)
        if not kept:
            on_end("sends more than can be taken")
        return kept

    return within_rate
