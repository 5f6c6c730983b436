"""Timeouts for slow clients: requests that never finish and responses that aren't read.

Each would occupy a connection and its buffers for as long as its client likes.
"""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_HEAD_TIMEOUT_S = 20.0
"""Maximum seconds for a request's line and headers; a slow mobile network needs two or three."""

SEND_BUFFER_TIMEOUT_S = 120.0
"""Maximum seconds for a client to accept buffered data: an MCP answer of 1.5 MB at 100 kbit/s."""


class TimeoutH11Protocol(H11Protocol):
    """uvicorn's HTTP/1.1 protocol with timeouts for request heads and for unread responses."""

    _head_timer: asyncio.TimerHandle | None = None
    _send_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timeout for the first request's head."""
        super().connection_made(transport)
        self._start_head_timer()

    def data_received(self, data: bytes) -> None:
        """Start the timeout at a head's first bytes, and stop it when the head is complete."""
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop_head_timer()
        elif self._head_timer is None:
            self._start_head_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers."""
        self._stop_head_timer()
        self._stop_send_timer()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Start the timeout when the send buffer is full."""
        super().pause_writing()
        self._stop_send_timer()
        # Closing would wait until the client has accepted everything.
        self._send_timer = self.loop.call_later(SEND_BUFFER_TIMEOUT_S, self.transport.abort)

    def resume_writing(self) -> None:
        """Stop the timeout when the send buffer drains."""
        self._stop_send_timer()
        super().resume_writing()

    def _stop_send_timer(self) -> None:
        if self._send_timer is not None:
            self._send_timer.cancel()
            self._send_timer = None

    def _start_head_timer(self) -> None:
        self._head_timer = self.loop.call_later(REQUEST_HEAD_TIMEOUT_S, self._close_if_idle)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _close_if_idle(self) -> None:
        self._head_timer = None
        if self.conn.their_state is h11.IDLE and (self.cycle is None or self.cycle.response_complete):
            self.transport.close()
