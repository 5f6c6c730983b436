"""When a request is sent again, and after how long. Pure; the transports sleep."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from codesdk.client.errors import ApiError, RateLimitedError, ServerError

MAX_DELAY_S = 8.0
"""Longest pause between two attempts, unless the API asks for a longer one."""
MAX_RETRY_AFTER_S = 60.0
"""A longer wait that the API asks for is left to the application."""
_NOT_IMPLEMENTED = 501


@dataclass(frozen=True)
class Retries:
    """How often a request is sent again: only if that can't do anything twice, with growing, random pauses."""

    attempts: int = 5
    """Maximum number of requests sent, the first included."""
    first_delay_s: float = 0.25

    def delay_after_error(
        self, sent: int, error: ApiError, *, repeatable: bool, random: Callable[[], float]
    ) -> float | None:
        """Seconds until the next attempt, after `sent` attempts; None: raise the error.

        `random` returns a number from 0 to 1.
        """
        transient = isinstance(error, RateLimitedError | ServerError) and error.status != _NOT_IMPLEMENTED
        # A request that was refused was not carried out, so any request may be sent again.
        refused = error.retry_after_s is not None
        if sent >= self.attempts or not transient or not error.retryable or not (repeatable or refused):
            return None
        if error.retry_after_s is not None:
            return error.retry_after_s if error.retry_after_s <= MAX_RETRY_AFTER_S else None
        return self.delay(sent, random)

    def delay_after_break(
        self, sent: int, *, repeatable: bool, was_sent: bool, random: Callable[[], float]
    ) -> float | None:
        """Likewise, after the connection failed. `was_sent`: False if no connection came about."""
        if sent >= self.attempts or (was_sent and not repeatable):
            return None
        return self.delay(sent, random)

    def delay(self, sent: int, random: Callable[[], float]) -> float:
        """Seconds of the pause after `sent` attempts: doubled each time, between half and the whole of it."""
        full = min(self.first_delay_s * 2.0 ** (sent - 1), MAX_DELAY_S)
        return full * (0.5 + random() / 2)
