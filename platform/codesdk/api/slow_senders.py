"""Connections that say something and never finish it: each would hold a place for as long as its client likes."""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_S = 20.0
"""Seconds in which a request's line and headers must have come; a slow mobile network needs two or three."""


class Impatient(H11Protocol):
    """uvicorn's HTTP/1.1, which waits for a whole head of a request for a bounded time only."""

    _alarm: asyncio.TimerHandle | None = None

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
        super().connection_lost(exc)

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
