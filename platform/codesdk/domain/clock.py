"""The clock port, so that time can be injected. No other module reads the system clock."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Wall-clock time for records, monotonic time for waits and leases."""

    def now(self) -> datetime:
        """Return the wall-clock time, aware, in UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never decrease. Only differences are meaningful."""
        ...


class SystemClock:
    """The system's clocks."""

    def now(self) -> datetime:
        """Return the wall-clock time, aware, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return seconds that never decrease. Only differences are meaningful."""
        return time.monotonic()


class ManualClock:
    """A clock that moves only by `advance`; the fake of the `Clock` port."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._now = start
        self._monotonic = 0.0

    def now(self) -> datetime:
        """Return the wall-clock time as last set."""
        return self._now

    def monotonic(self) -> float:
        """Return the seconds advanced since the start."""
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Advance both clocks."""
        self._now = datetime.fromtimestamp(self._now.timestamp() + seconds, UTC)
        self._monotonic += seconds


def to_rfc3339(moment: datetime) -> str:
    """Format as RFC 3339 in UTC with milliseconds, as in every event: `2026-01-01T00:00:00.000Z`."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds")[:23] + "Z"
