"""Token buckets of bytes: a rate, and a burst that may be used before it applies."""

from __future__ import annotations

import threading
from collections.abc import Hashable
from dataclasses import dataclass
from typing import NamedTuple

from codesdk.domain.clock import Clock

_REMEMBERED = 4096
"""Number of buckets from which full ones are dropped."""


class ByteRate(NamedTuple):
    """A limit on bytes."""

    per_s: int
    """Bytes per second; 0: no limit."""
    burst: int
    """Bytes that may be used before the rate applies."""


NO_BYTE_RATE = ByteRate(0, 0)


@dataclass
class _Bucket:
    left: float
    """Bytes; negative: a debt."""
    at: float
    """Monotonic seconds at which `left` was computed."""
    total: int
    """The counter's highest value, for `observe`."""


class ByteBuckets:
    """A bucket for each key. In memory: after a restart all are full. Thread-safe."""

    def __init__(self, rate: ByteRate, clock: Clock) -> None:
        self.rate = rate
        self._clock = clock
        self._lock = threading.Lock()
        self._buckets: dict[Hashable, _Bucket] = {}

    def take(self, key: Hashable, amount: int) -> bool:
        """Use `amount` bytes if the bucket isn't empty. Returns False if it is."""
        if not self.rate.per_s:
            return True
        with self._lock:
            bucket = self._filled(key, 0)
            if bucket.left <= 0:
                return False
            bucket.left -= amount
            return True

    def observe(self, key: Hashable, total: int) -> float:
        """Use what a counter has grown by since it was last seen. Returns what is left; a debt is negative.

        Safe to repeat with the same or an earlier total. A counter that is seen for the first time has used nothing.
        """
        if not self.rate.per_s:
            return 0.0
        with self._lock:
            bucket = self._filled(key, total)
            bucket.left -= max(0, total - bucket.total)
            bucket.total = max(bucket.total, total)
            return bucket.left

    def left(self, key: Hashable) -> float:
        """Return the bytes left; a whole burst if the bucket was never used. Uses nothing."""
        with self._lock:
            return self._filled(key, 0).left if key in self._buckets else self.rate.burst

    def _filled(self, key: Hashable, total: int) -> _Bucket:
        now = self._clock.monotonic()
        bucket = self._buckets.get(key)
        if bucket is None:
            if len(self._buckets) >= _REMEMBERED:
                self._drop_full(now)
            bucket = self._buckets[key] = _Bucket(self.rate.burst, now, total)
        bucket.left = min(self.rate.burst, bucket.left + (now - bucket.at) * self.rate.per_s)
        bucket.at = now
        return bucket

    def _drop_full(self, now: float) -> None:
        kept = {
            key: bucket
            for key, bucket in self._buckets.items()
            if bucket.left + (now - bucket.at) * self.rate.per_s < self.rate.burst
        }
        self._buckets = kept
