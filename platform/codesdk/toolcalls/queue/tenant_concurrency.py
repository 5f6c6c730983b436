"""How many calls each tenant has at a worker: no tenant has all of its threads."""

from __future__ import annotations

import threading
from collections import Counter

from codesdk.domain.calls import CallIdentity
from codesdk.domain.ids import TenantId


class TenantConcurrency:
    """Counts in memory, so a claim costs nothing more. Safe to use from any thread."""

    def __init__(self, most: int) -> None:
        """`most`: calls of one tenant; 0: no limit, and nothing is counted."""
        self._most = most
        self._lock = threading.Lock()
        self._running: dict[CallIdentity, TenantId] = {}
        """By attempt: the next one of a call may begin before the thread that lost the one before has left."""
        self._counts: Counter[TenantId] = Counter()

    def is_full(self, tenant: TenantId) -> bool:
        """Whether the tenant has as many calls as it may."""
        return bool(self._most) and self._counts[tenant] >= self._most

    def acquire(self, call: CallIdentity, tenant: TenantId) -> None:
        """A call of it begins; twice is once."""
        with self._lock:
            if self._most and call not in self._running:
                self._running[call] = tenant
                self._counts[tenant] += 1

    def leave(self, call: CallIdentity) -> None:
        """It has ended, or did not begin after all; twice is no error."""
        with self._lock:
            tenant = self._running.pop(call, None)
            if tenant is None:
                return
            self._counts[tenant] -= 1
            if not self._counts[tenant]:
                del self._counts[tenant]
