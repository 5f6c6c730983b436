"""Rate limit per session: concurrent requests, and requests per second. Sessions don't delay each other."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from codesdk.domain.clock import Clock

MAX_CONCURRENT = 128
"""Concurrent requests of one session; an agent with parallel calls was measured at ten."""
RATE_PER_S = 500.0
"""Requests per second; a sequential client stays below it."""
BURST = 1000.0
"""Requests allowed in a burst before the rate applies."""
_REMEMBERED = 4096
"""Buckets kept before idle full ones are dropped."""


@dataclass
class _Bucket:
    left: float
    at: float
    open: int = 0


class Throttle:
    """Token buckets by key. Used on one event loop."""

    def __init__(
        self, clock: Clock, *, at_once: int = MAX_CONCURRENT, per_s: float = RATE_PER_S, burst: float = BURST
    ) -> None:
        self._clock = clock
        self._at_once = at_once
        self._per_s = per_s
        self._burst = burst
        self._buckets: dict[Hashable, _Bucket] = {}

    def enter(self, key: Hashable) -> float:
        """Admit one request: returns 0, and the caller must `leave`. Otherwise returns the seconds to wait before a retry."""
        now = self._clock.monotonic()
        bucket = self._buckets.get(key)
        if bucket is None:
            if len(self._buckets) >= _REMEMBERED:
                self._drop_full(now)
            bucket = self._buckets[key] = _Bucket(self._burst, now)
        bucket.left = min(self._burst, bucket.left + (now - bucket.at) * self._per_s)
        bucket.at = now
        if bucket.open >= self._at_once:
            return 1.0
        if bucket.left < 1:
            return (1 - bucket.left) / self._per_s
        bucket.left -= 1
        bucket.open += 1
        return 0.0

    def leave(self, key: Hashable) -> None:
        """An admitted request was answered."""
        self._buckets[key].open -= 1

    def _drop_full(self, now: float) -> None:
        full = [
            key
            for key, bucket in self._buckets.items()
            if not bucket.open and bucket.left + (now - bucket.at) * self._per_s >= self._burst
        ]
        for key in full:
            del self._buckets[key]
