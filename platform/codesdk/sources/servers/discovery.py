"""Asks a server once what it offers, for whoever accepts its tools: it is started, listed, and stopped."""

from __future__ import annotations

from collections.abc import Callable

from codesdk.domain.clock import Clock
from codesdk.registry import Source
from codesdk.sources.catalog.tool_listing import ToolListing
from codesdk.sources.servers.event_loop import EventLoopThread
from codesdk.sources.servers.server import Server, StartedServer


def list_offered_tools(source: Source, begin: Callable[[], StartedServer], clock: Clock) -> ToolListing:
    """What the server says now.

    Raises:
        SourceUnavailable: it did not start, or did not keep to the protocol.
        Fault: what kept its sandbox from being made.
    """
    thread = EventLoopThread("codesdk-ask-source")
    server = Server(source, begin, loop=thread.loop, clock=clock, on_listing=lambda _: None)
    try:
        return server.ready().conversation.latest
    finally:
        server.close("was stopped: it has answered")
        thread.close()
