"""A circuit breaker: skips an unresponsive dependency for a while, because each try would cost a full timeout."""

from __future__ import annotations

from collections.abc import Callable

from codesdk.domain.clock import Clock, SystemClock


class CircuitBreaker:
    """For work that may be left undone. Safe to use from any thread."""

    def __init__(self, seconds: float, clock: Clock | None = None) -> None:
        """`seconds`: from a try that failed until the next is made, on the system's clock where no other is given."""
        self._seconds = seconds
        self._clock = clock or SystemClock()
        self._open_until = 0.0

    def attempt(self, work: Callable[[], object]) -> bool:
        """Do it. False: a try failed just now, and this one was not made.

        Raises:
            Exception: what `work` raises; the pause begins.
        """
        if self._clock.monotonic() < self._open_until:
            return False
        try:
            work()
        except Exception:
            self._open_until = self._clock.monotonic() + self._seconds
            raise
        return True
