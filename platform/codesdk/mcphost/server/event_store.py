"""Resumable streams: what was sent to a client, kept for as long as it may come back for it.

A client whose connection drops asks for the rest by the id of the last event that it saw, so nothing has to run again.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import mcp_types as types
from mcp.server.auth.middleware.bearer_auth import AuthorizationContext
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore, StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

RETRY_MS = 1000
"""Milliseconds after which a client comes back; all that were measured keep to it."""
MAX_EVENTS = 256
MAX_BYTES = 2 * 1024 * 1024
"""Of one MCP session, counted as JSON. The newest event is kept whatever its size."""


MAX_PER_SESSION = 512
"""MCP sessions of the handshake era that one session of ours may have at once, of the 10,000 that the SDK keeps: clients
that reconnect leave theirs behind for half an hour."""


class _SentEvent(NamedTuple):
    number: int
    stream: str
    message: types.JSONRPCMessage | None
    size: int


class SessionEventStore(EventStore):
    """The newest events of one MCP session. Used on one event loop."""

    def __init__(self) -> None:
        self._events: deque[_SentEvent] = deque()
        self._bytes = 0
        self._last = 0

    async def store_event(self, stream_id: str, message: types.JSONRPCMessage | None) -> str:
        """Keep it; returns its id, which grows within the session."""
        self._last += 1
        size = len(message.model_dump_json()) if message is not None else 0
        self._events.append(_SentEvent(self._last, stream_id, message, size))
        self._bytes += size
        while len(self._events) > MAX_EVENTS or (self._bytes > MAX_BYTES and len(self._events) > 1):
            self._bytes -= self._events.popleft().size
        return str(self._last)

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        """Send what followed on the same stream; None where that event is not known, or no more."""
        seen = next((event for event in self._events if str(event.number) == last_event_id), None)
        if seen is None:
            return None
        for event in [event for event in self._events if event.number > seen.number and event.stream == seen.stream]:
            if event.message is not None:
                await send_callback(EventMessage(event.message, str(event.number)))
        return seen.stream


class ResumableSessionManager(StreamableHTTPSessionManager):
    """The SDK's sessions, each with events of its own, and not so many of one credential that none is left for others.

    The SDK gives one store to all of them, and names a stream by its request's id, which every client counts from 0: a
    client could then read what was sent to another. It asks for the store once for each session.
    """

    @property
    def event_store(self) -> EventStore:
        """That of the session which is being made."""
        return SessionEventStore()

    @event_store.setter
    def event_store(self, _given: EventStore | None) -> None:
        """Nothing: there is none that they share."""

    def _admit_session(self, requestor: AuthorizationContext | None) -> StreamableHTTPServerTransport | None:
        owned = sum(owner == requestor for owner in self._session_owners.values())
        return super()._admit_session(requestor) if owned < MAX_PER_SESSION else None
