"""Remote MCP servers: served on loopback, which the operator allows, and reached as a worker does it."""

from __future__ import annotations

import ipaddress
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from codesdk.domain.network.addresses import allow_networks
from codesdk.domain.network.resolver import public_and_remote
from codesdk.sources.starters.remote import RemoteStarter
from codesdk.sources.starters.router import StarterRouter
from source_stage import SourceStage, until

LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"),)


@contextmanager
def served(app: ASGIApp) -> Iterator[str]:
    """Its address, while the block lasts."""
    config = uvicorn.Config(
        app, host="127.0.0.1", port=0, log_level="critical", http="h11", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        until(lambda: server.started, "the server to listen")
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/mcp"
    finally:
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive()


class Reached(SourceStage):
    """A stage whose source is elsewhere."""

    networks = LOOPBACK
    values: dict[tuple[str, str], str] = {}

    @staticmethod
    def resolve(_name: str) -> list[ipaddress.IPv4Address]:
        return [ipaddress.IPv4Address("127.0.0.1")]

    def starter(self, generation: int = 1) -> Any:
        remote = RemoteStarter(
            resolve=self.resolve,
            policy=allow_networks(self.networks, public_and_remote),
            own=self.networks,
            tls=ssl.create_default_context(),
            secrets=lambda tenant, name: self.values.get((tenant, name)),
            clock=self.clock,
        )
        return StarterRouter(super().starter(generation), remote)
