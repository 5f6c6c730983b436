"""Limits how many requests of each tenant run at once, so that one tenant leaves threads to the others.

Most routes run on one of the process's 40 threads. Further requests of the tenant wait without one. Beyond its first few,
all tenants together share a part of the threads, so that several busy tenants can't hold all of them either.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

from anyio import Event, Semaphore

from codesdk.domain.ids import TenantId

AT_ONCE = 16
"""Requests of a tenant that run at once, of all routes that are not listed below."""
UPLOADS = (
    ("POST", "/v1/artifacts"),
    ("PUT", "/v1/sessions/{session_id}/files"),
    ("PUT", "/v1/sessions/{session_id}/files/tree"),
)
"""Slow senders, which hold no thread while they send."""
ROUTES_AT_ONCE = {
    **dict.fromkeys(UPLOADS, 8),
    # Each may decide thousands of calls. Two would only take turns with each other on the processor.
    ("POST", "/v1/policy/diff"): 1,
    ("POST", "/v1/policy/promote"): 1,
    ("POST", "/v1/policy/rollback"): 1,
}
"""Requests of a tenant to these routes, which count for no other."""
OWN_THREADS = 2
"""Requests of a tenant that take no shared thread."""
SHARED_THREADS = 24
"""Further requests of all tenants together. The other 16 of 40 threads only serve tenants with at most two requests."""


class TenantSlots:
    """The slots of one process. Used on its event loop."""

    def __init__(self) -> None:
        self._slots = WeakValueDictionary[tuple[TenantId, str], Semaphore]()
        self._threads = _Threads()

    @asynccontextmanager
    async def hold(self, tenant: TenantId, method: str, path: str) -> AsyncIterator[None]:
        """Wait until the request may run, and keep its slot within the block."""
        route = (method, path)
        at_once = ROUTES_AT_ONCE.get(route)
        key = (tenant, "" if at_once is None else path)
        async with self._slots.setdefault(key, Semaphore(at_once or AT_ONCE)):
            if route in UPLOADS:
                yield
                return
            await self._threads.take(tenant)
            try:
                yield
            finally:
                self._threads.give_back(tenant)


class _Threads:
    """Counts the threads that requests hold, by tenant."""

    def __init__(self) -> None:
        self._held = Counter[TenantId]()
        self._waiting: dict[Event, TenantId] = {}

    async def take(self, tenant: TenantId) -> None:
        """Wait for a thread. Those that wait get theirs in order of arrival, unless only a later one may have it."""
        if self._is_free_for(tenant):
            self._held[tenant] += 1
            return
        turn = Event()
        self._waiting[turn] = tenant
        try:
            await turn.wait()
        except BaseException:
            if self._waiting.pop(turn, None) is None:
                self.give_back(tenant)
            raise

    def give_back(self, tenant: TenantId) -> None:
        """Return a thread, and wake whom it is free for."""
        self._held[tenant] -= 1
        if not self._held[tenant]:
            del self._held[tenant]
        for turn, waiting in list(self._waiting.items()):
            if self._is_free_for(waiting):
                del self._waiting[turn]
                self._held[waiting] += 1
                turn.set()

    def _is_free_for(self, tenant: TenantId) -> bool:
        shared = sum(max(0, held - OWN_THREADS) for held in self._held.values())
        return self._held[tenant] < OWN_THREADS or shared < SHARED_THREADS
