"""The clock port, so that time can be injected. No other module reads the system clock."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Wall time for records, monotonic time for waits and leases."""

    def now(self) -> datetime:
        """The wall time, aware, in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back; only differences mean anything."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now(self) -> datetime:
        """The wall time, aware, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds that never go back; only differences mean anything."""
        return time.monotonic()


class ManualClock:
    """A clock that moves only when told to; the fake of the `Clock` port."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._now = start
        self._monotonic = 0.0

    def now(self) -> datetime:
        """The wall time as last set."""
        return self._now

    def monotonic(self) -> float:
        """Seconds advanced since the start."""
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Move both clocks forward."""
        self._now = datetime.fromtimestamp(self._now.timestamp() + seconds, UTC)
        self._monotonic += seconds


def to_rfc3339(moment: datetime) -> str:
    """RFC 3339 in UTC with milliseconds, as every event carries it: `2026-01-01T00:00:00.000Z`."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds")[:23] + "Z"
