"""Timeouts for slow clients: requests that never finish and responses that aren't read.

Each would hold a place, and what was written to it, for as long as its client likes.
"""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_HEAD_TIMEOUT_S = 20.0
"""Seconds in which a request's line and headers must have come; a slow mobile network needs two or three."""

SEND_BUFFER_TIMEOUT_S = 120.0
"""Seconds in which a client must take what waits to be sent: an answer of MCP of 1.5 MB at 100 kilobits a second."""


class TimeoutH11Protocol(H11Protocol):
    """uvicorn's HTTP/1.1, which waits for a whole head of a request, and for a reader, for a bounded time only."""

    _head_timer: asyncio.TimerHandle | None = None
    _send_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client is there, and has said nothing yet."""
        super().connection_made(transport)
        self._start_head_timer()

    def data_received(self, data: bytes) -> None:
        """Some bytes of it: from the first on, the rest of the head is due."""
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop_head_timer()
        elif self._head_timer is None:
            self._start_head_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self._stop_head_timer()
        self._stop_send_timer()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """More waits to be sent than the connection takes."""
        super().pause_writing()
        self._stop_send_timer()
        # Closing it would wait until all of it is taken.
        self._send_timer = self.loop.call_later(SEND_BUFFER_TIMEOUT_S, self.transport.abort)

    def resume_writing(self) -> None:
        """It was taken."""
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
