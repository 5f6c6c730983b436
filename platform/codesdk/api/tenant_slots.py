"""Limits how many requests of each tenant run at once, so that one tenant leaves threads to the others.

Most routes run on one of the process's 40 threads. Further requests of the tenant wait without one.
"""

from __future__ import annotations

from weakref import WeakValueDictionary

from anyio import Semaphore

from codesdk.domain.ids import TenantId

AT_ONCE = 16
"""Requests of a tenant that run at once, of all routes that are not listed below."""
ROUTES_AT_ONCE = {
    ("POST", "/v1/artifacts"): 8,  # slow senders
    ("PUT", "/v1/sessions/{session_id}/files"): 8,
    ("PUT", "/v1/sessions/{session_id}/files/tree"): 8,
    # Each may decide thousands of calls. Two would only take turns with each other on the processor.
    ("POST", "/v1/policy/diff"): 1,
    ("POST", "/v1/policy/promote"): 1,
    ("POST", "/v1/policy/rollback"): 1,
}
"""Requests of a tenant to these routes, which count for no other."""


class TenantSlots:
    """The slots of one process. Used on its event loop."""

    def __init__(self) -> None:
        self._slots = WeakValueDictionary[tuple[TenantId, str], Semaphore]()

    def of(self, tenant: TenantId, method: str, path: str) -> Semaphore:
        """Return the slots that a request takes one of while it runs."""
        at_once = ROUTES_AT_ONCE.get((method, path))
        key = (tenant, "" if at_once is None else path)
        return self._slots.setdefault(key, Semaphore(at_once or AT_ONCE))
