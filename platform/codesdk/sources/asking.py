"""Asks a server once what it offers, for whoever accepts its tools: it is started, listed, and stopped."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from codesdk.domain.clock import Clock
from codesdk.registry import Source
from codesdk.sources.listing import Listing
from codesdk.sources.server import Begun, Server

_JOIN_S = 5.0


def offered_by(source: Source, begin: Callable[[], Begun], clock: Clock) -> Listing:
    """What the server says now.

    Raises:
        SourceUnavailable: it did not start, or did not keep to the protocol.
        Fault: what kept its sandbox from being made.
    """
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="codesdk-ask-source", daemon=True)
    thread.start()
    server = Server(source, begin, loop=loop, clock=clock, on_listing=lambda _: None)
    try:
        return server.ready().conversation.latest
    finally:
        server.close("was stopped: it has answered")
        loop.call_soon_threadsafe(loop.stop)
        thread.join(_JOIN_S)
        if not thread.is_alive():
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()
