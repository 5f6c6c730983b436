"""How many requests one session's token may make: so many at once, and so many in a time. Others are not delayed by it."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from codesdk.domain.clock import Clock

AT_ONCE = 128
"""Requests of one session that are answered at the same time; an agent with parallel calls was seen to make ten."""
PER_S = 500.0
"""Requests a second; one after the other, a client makes fewer."""
BURST = 1000.0
"""Requests that may come together before the rate holds."""
_REMEMBERED = 4096
"""Sessions that are remembered before those at rest are forgotten."""


@dataclass
class _Spent:
    left: float
    at: float
    open: int = 0


class Throttle:
    """Token buckets by key. Used on one event loop."""

    def __init__(self, clock: Clock, *, at_once: int = AT_ONCE, per_s: float = PER_S, burst: float = BURST) -> None:
        self._clock = clock
        self._at_once = at_once
        self._per_s = per_s
        self._burst = burst
        self._spent: dict[Hashable, _Spent] = {}

    def enter(self, key: Hashable) -> float:
        """Let one request in: 0, and `leave` must follow. Else the seconds after which to try again, and none must."""
        now = self._clock.monotonic()
        spent = self._spent.get(key)
        if spent is None:
            if len(self._spent) >= _REMEMBERED:
                self._forget(now)
            spent = self._spent[key] = _Spent(self._burst, now)
        spent.left = min(self._burst, spent.left + (now - spent.at) * self._per_s)
        spent.at = now
        if spent.open >= self._at_once:
            return 1.0
        if spent.left < 1:
            return (1 - spent.left) / self._per_s
        spent.left -= 1
        spent.open += 1
        return 0.0

    def leave(self, key: Hashable) -> None:
        """A request that was let in has its answer."""
        self._spent[key].open -= 1

    def _forget(self, now: float) -> None:
        rested = [
            key
            for key, spent in self._spent.items()
            if not spent.open and spent.left + (now - spent.at) * self._per_s >= self._burst
        ]
        for key in rested:
            del self._spent[key]
