"""A circuit breaker: skips an unresponsive dependency for a while, because each try would cost a full timeout."""

from __future__ import annotations

from collections.abc import Callable

from codesdk.domain.clock import Clock, SystemClock


class CircuitBreaker:
    """Guards optional work. Safe to use from any thread."""

    def __init__(self, seconds: float, clock: Clock | None = None) -> None:
        """Create the breaker. `seconds`: the pause after a failure; `clock`: the system clock by default."""
        self._seconds = seconds
        self._clock = clock or SystemClock()
        self._open_until = 0.0

    def attempt(self, work: Callable[[], object]) -> bool:
        """Run `work`, unless it failed within the pause. Returns whether it ran.

        Raises:
            Exception: what `work` raises; the pause starts.
        """
        if self._clock.monotonic() < self._open_until:
            return False
        try:
            work()
        except Exception:
            self._open_until = self._clock.monotonic() + self._seconds
            raise
        return True
