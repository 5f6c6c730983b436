"""Resumable streams: keeps sent events, so that a client that reconnects gets those it missed (`Last-Event-ID`)."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import mcp_types as types
from mcp.server.auth.middleware.bearer_auth import AuthorizationContext
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore, StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

RETRY_MS = 1000
"""Milliseconds until a client reconnects; all measured clients honour it."""
MAX_EVENTS = 256
MAX_BYTES = 2 * 1024 * 1024
"""Per MCP session, counted as JSON. The newest event is always kept."""


MAX_PER_SESSION = 512
"""Handshake-era MCP sessions that one CodeSDK session may have at once, of the 10,000 that the SDK keeps; clients that
reconnect leave theirs behind for half an hour."""


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
        """Store an event; returns its id, which increases within the session."""
        self._last += 1
        size = len(message.model_dump_json()) if message is not None else 0
        self._events.append(_SentEvent(self._last, stream_id, message, size))
        self._bytes += size
        while len(self._events) > MAX_EVENTS or (self._bytes > MAX_BYTES and len(self._events) > 1):
            self._bytes -= self._events.popleft().size
        return str(self._last)

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        """Send the later events of the same stream; None if the event is unknown or no longer stored."""
        seen = next((event for event in self._events if str(event.number) == last_event_id), None)
        if seen is None:
            return None
        for event in [event for event in self._events if event.number > seen.number and event.stream == seen.stream]:
            if event.message is not None:
                await send_callback(EventMessage(event.message, str(event.number)))
        return seen.stream


class ResumableSessionManager(StreamableHTTPSessionManager):
    """The SDK's session manager with one event store per session, and a limit on sessions per credential.

    The SDK shares one store among all sessions and names streams by request id, which every client counts from 0, so a
    client could read another's events. It reads `event_store` once per session.
    """

    @property
    def event_store(self) -> EventStore:
        """A new store for the session being created."""
        return SessionEventStore()

    @event_store.setter
    def event_store(self, _given: EventStore | None) -> None:
        """Ignored: sessions share no store."""

    def _admit_session(self, requestor: AuthorizationContext | None) -> StreamableHTTPServerTransport | None:
        owned = sum(owner == requestor for owner in self._session_owners.values())
        return super()._admit_session(requestor) if owned < MAX_PER_SESSION else None
