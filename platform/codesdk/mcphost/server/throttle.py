"""How many requests one session's token may make: so many at once, and so many in a time. Others are not delayed by it."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from codesdk.domain.clock import Clock

MAX_CONCURRENT = 128
"""Requests of one session that are answered at the same time; an agent with parallel calls was seen to make ten."""
RATE_PER_S = 500.0
"""Requests a second; one after the other, a client makes fewer."""
BURST = 1000.0
"""Requests that may come together before the rate holds."""
_REMEMBERED = 4096
"""Sessions that are remembered before those at rest are forgotten."""


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
        """Let one request in: 0, and `leave` must follow. Else the seconds after which to try again, and none must."""
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
        """A request that was let in has its answer."""
        self._buckets[key].open -= 1

    def _drop_full(self, now: float) -> None:
        full = [
            key
            for key, bucket in self._buckets.items()
            if not bucket.open and bucket.left + (now - bucket.at) * self._per_s >= self._burst
        ]
        for key in full:
            del self._buckets[key]
