"""Connections that say something and never finish it, or take nothing of what they are told.

Each would hold a place, and what was written to it, for as long as its client likes.
"""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_S = 20.0
"""Seconds in which a request's line and headers must have come; a slow mobile network needs two or three."""

TAKE_S = 120.0
"""Seconds in which a client must take what waits to be sent: an answer of MCP of 1.5 MB at 100 kilobits a second."""


class Impatient(H11Protocol):
    """uvicorn's HTTP/1.1, which waits for a whole head of a request, and for a reader, for a bounded time only."""

    _alarm: asyncio.TimerHandle | None = None
    _taking: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client is there, and has said nothing yet."""
        super().connection_made(transport)
        self._expect()

    def data_received(self, data: bytes) -> None:
        """Some bytes of it: from the first on, the rest of the head is due."""
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._relax()
        elif self._alarm is None:
            self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self._relax()
        self._took()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """More waits to be sent than the connection takes."""
        super().pause_writing()
        self._took()
        # Closing it would wait until all of it is taken.
        self._taking = self.loop.call_later(TAKE_S, self.transport.abort)

    def resume_writing(self) -> None:
        """It was taken."""
        self._took()
        super().resume_writing()

    def _took(self) -> None:
        if self._taking is not None:
            self._taking.cancel()
            self._taking = None

    def _expect(self) -> None:
        self._alarm = self.loop.call_later(HEAD_S, self._end)

    def _relax(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _end(self) -> None:
        self._alarm = None
        if self.conn.their_state is h11.IDLE and (self.cycle is None or self.cycle.response_complete):
            self.transport.close()
