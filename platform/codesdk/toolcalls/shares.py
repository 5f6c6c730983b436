"""How many calls each tenant has at a worker: no tenant has all of its threads."""

from __future__ import annotations

import threading
from collections import Counter

from codesdk.domain.ids import TenantId, ToolCallId


class Shares:
    """Counts in memory, so a claim costs nothing more. Safe to use from any thread."""

    def __init__(self, most: int) -> None:
        """`most`: calls of one tenant; 0: no limit, and nothing is counted."""
        self._most = most
        self._lock = threading.Lock()
        self._held: dict[ToolCallId, TenantId] = {}
        self._counts: Counter[TenantId] = Counter()

    def is_full(self, tenant: TenantId) -> bool:
        """Whether the tenant has as many calls as it may."""
        return bool(self._most) and self._counts[tenant] >= self._most

    def enter(self, call: ToolCallId, tenant: TenantId) -> None:
        """A call of it begins; twice is once."""
        with self._lock:
            if self._most and call not in self._held:
                self._held[call] = tenant
                self._counts[tenant] += 1

    def leave(self, call: ToolCallId) -> None:
        """It has ended, or did not begin after all; twice is no error."""
        with self._lock:
            tenant = self._held.pop(call, None)
            if tenant is None:
                return
            self._counts[tenant] -= 1
            if not self._counts[tenant]:
                del self._counts[tenant]
