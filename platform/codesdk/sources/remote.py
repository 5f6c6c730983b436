"""Servers that are elsewhere: spoken to over streamable HTTP, through the gate, with the tenant's secrets as headers."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import httpx2
from mcp.client.streamable_http import streamable_http_client

from codesdk.domain.addresses import AddressPolicy, Networks, allowing
from codesdk.domain.clock import Clock
from codesdk.domain.hosts import address_of
from codesdk.domain.ids import SessionId, TenantId
from codesdk.domain.resolution import Resolve, not_this_machine, system_resolve
from codesdk.registry import Source
from codesdk.sources.faults import SourceUnavailable
from codesdk.sources.gate import EVENT_LINES, Bears, GatedTransport
from codesdk.sources.lines import MAX_LINE
from codesdk.sources.pace import MESSAGES, Pace
from codesdk.sources.server import Begun

CONNECT_S = 10.0
"""Seconds for a connection, and for a piece of a request to be taken."""
SILENT_S = 300.0
"""Seconds in which an answer may say nothing: longer than any progress is apart. A call's own limit comes first."""
Secrets = Callable[[str, str], str | None]
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
        secrets: Secrets,
        clock: Clock,
    ) -> None:
        """`policy`: which addresses are connected to; `own`: the operator's networks, where `http` will do."""
        self._resolve = resolve
        self._policy = policy
        self._own = own
        self._tls = tls
        self._secrets = secrets
        self._clock = clock

    def begin(self, source: Source, serves: SessionId | None, tenant: TenantId) -> Begun:
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
        transport = partial(GatedTransport, url, self._resolve, self._policy, self._tls)
        return Begun(partial(_reached, url, headers, transport, self._clock.monotonic), lambda: None)

    def _check(self, name: str, url: httpx2.URL) -> None:
        if url.scheme == "https":
            return
        address = address_of(url.host)
        if address is None or not any(address in network for network in self._own):
            advice = "Give an https:// URL, or an address in CODESDK_SOURCE_NETWORKS."
            raise SourceUnavailable(name, "is not reached by https, so anybody on the way could change it", advice)

    def _secret(self, source: Source, tenant: TenantId, name: str) -> str:
        value = self._secrets(tenant, name)
        if value is None:
            raise SourceUnavailable(source.name, f"needs the secret `{name}`, which this tenant has not")
        return value


def remote_starter(
    networks: Networks, secrets: Secrets, clock: Clock, tls: ssl.SSLContext | None = None
) -> RemoteStarter:
    """With this machine's resolver and certificates. `networks`: of the operator's own."""
    return RemoteStarter(
        resolve=system_resolve,
        policy=allowing(networks, not_this_machine),
        own=networks,
        tls=tls or ssl.create_default_context(),
        secrets=secrets,
        clock=clock,
    )


@asynccontextmanager
async def _reached(
    url: httpx2.URL,
    headers: dict[str, str],
    transport: Callable[..., GatedTransport],
    monotonic: Callable[[], float],
    on_end: Callable[[str], None],
) -> AsyncIterator[Any]:
    """The conversation, while the block lasts; each request connects anew where it must.

    It ends by itself only where the server says too much.
    """
    bears = _hearing(monotonic, on_end)
    times = httpx2.Timeout(CONNECT_S, read=SILENT_S)
    async with (
        httpx2.AsyncClient(transport=transport(bears=bears), headers=headers, timeout=times, trust_env=False) as client,
        # No farewell: it would wait as long as an answer may, and a server forgets idle sessions by itself.
        streamable_http_client(
            str(url), http_client=client, max_sse_event_size=MAX_LINE, terminate_on_close=False
        ) as streams,
    ):
        yield streams


def _hearing(monotonic: Callable[[], float], on_end: Callable[[str], None]) -> Bears:
    """Counts all that comes in one conversation, on whichever of its streams, and ends it beyond the pace."""
    pace = Pace(messages=EVENT_LINES * MESSAGES)

    def bears(size: int, lines: int) -> bool:
        kept = pace.keeps(size, monotonic(), lines)
        if not kept:
            on_end("sends more than can be taken")
        return kept

    return bears
