"""Resolves a name once, checks every address, and connects to a checked address."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

from codesdk.domain.network.addresses import AddressPolicy
from codesdk.domain.network.hostnames import Address, parse_address
from codesdk.domain.network.resolver import Resolve
from codesdk.sandbox.egress.connection_attempt import Reason, Refusal

MAX_ADDRESSES_TRIED = 4
"""Addresses tried per name, in the resolver's order."""
READ_LIMIT = 64 * 1024
"""Bytes per read from the upstream; asyncio buffers up to twice as many."""


@dataclass(frozen=True)
class Upstream:
    """A connection to a checked address."""

    address: Address
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        """Send all of it, waiting for buffer space."""
        self.writer.write(data)
        await self.writer.drain()

    def close(self) -> None:
        """Abort the connection."""
        self.writer.transport.abort()


class Dialer:
    """Resolves names, checks addresses and connects."""

    def __init__(
        self,
        resolve: Resolve,
        policy: AddressPolicy,
        threads: Executor,
        tls: ssl.SSLContext,
        *,
        resolve_s: float = 10.0,
        connect_s: float = 10.0,
    ) -> None:
        self._resolve = resolve
        self._policy = policy
        self._threads = threads
        self._tls = tls
        self._resolve_s = resolve_s
        self._connect_s = connect_s

    async def dial(self, host: str, port: int, *, tls: bool) -> Upstream:
        """Connect; `host` is canonical.

        Raises:
            Refusal: ADDRESS_REFUSED, NO_SUCH_NAME, UNREACHABLE or UPSTREAM_TLS.
        """
        addresses = await self._addresses(host)
        for address in addresses:
            why = self._policy(address)
            if why is not None:
                # One private address among public ones looks like DNS rebinding: use none of them.
                raise Refusal(Reason.ADDRESS_REFUSED, f"{host} has the address {address}: {why}")
        error: OSError | None = None
        for address in addresses[:MAX_ADDRESSES_TRIED]:
            try:
                return await self._connect(address, host if tls else None, port)
            except ssl.SSLError as broken:
                raise Refusal(Reason.UPSTREAM_TLS, f"{host}:{port}: {broken}") from broken
            except OSError as unreachable:
                error = unreachable
        raise Refusal(Reason.UNREACHABLE, f"{host}:{port} cannot be connected to: {error}") from error

    async def _addresses(self, host: str) -> Sequence[Address]:
        literal = parse_address(host)
        if literal is not None:
            return (literal,)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._resolve_s):
                found = await loop.run_in_executor(self._threads, self._resolve, host)
        except (OSError, UnicodeError) as error:  # TimeoutError is an OSError
            raise Refusal(Reason.NO_SUCH_NAME, f"{host} cannot be resolved: {error}") from error
        if not found:
            raise Refusal(Reason.NO_SUCH_NAME, f"{host} has no address")
        return found

    async def _connect(self, address: Address, server_name: str | None, port: int) -> Upstream:
        family = socket.AF_INET if address.version == 4 else socket.AF_INET6  # noqa: PLR2004 - IP versions
        made = socket.socket(family, socket.SOCK_STREAM)
        try:
            made.setblocking(False)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            async with asyncio.timeout(self._connect_s):
                # An address, not a name: nothing is resolved a second time.
                await asyncio.get_running_loop().sock_connect(made, (str(address), port))
                reader, writer = await asyncio.open_connection(
                    sock=made,
                    limit=READ_LIMIT,
                    ssl=self._tls if server_name is not None else None,
                    server_hostname=server_name,
                )
        except BaseException:
            made.close()
            raise
        return Upstream(address, reader, writer)
