"""Enforces a tenant's limits across processes (ADR 12)."""

from __future__ import annotations

from collections.abc import Mapping

from codesdk.domain.ids import TenantId
from codesdk.domain.model import FrozenModel
from codesdk.domain.quotas import EgressReservation, QueueFull, QuotaExceeded, Resource
from codesdk.errors import InternalFault
from codesdk.storage.database import Database
from codesdk.storage.writer import Unit
from codesdk.tenancy.quotas import store

UNLIMITED = 0
"""A limit of 0 means unlimited."""
EGRESS_SHARE = 8
"""One reservation of egress gets at most an eighth of what is left, so that later ones get some, too."""
_ADVICE = {
    Resource.SESSIONS: "Close sessions that are not needed (`codesdk sessions close`)",
    Resource.QUEUED_CALLS: "Wait until some of the calls have run or been decided, and try again",
    Resource.RUNNING_CALLS: "Wait until some of the calls have ended, and try again",
    Resource.ARTIFACT_BYTES: "Remove artifacts that are not needed",
    Resource.LOG_BYTES: "Remove old sessions (`codesdk events export`, then `codesdk events prune`)",
    Resource.API_KEYS: "Revoke keys that are not needed (`codesdk keys revoke`)",
    Resource.SANDBOX_MEMORY_BYTES: "Close sessions, or open this one with a smaller profile",
    Resource.SANDBOX_MILLICPUS: "Close sessions, or open this one with a smaller profile",
    Resource.WORKSPACE_BYTES: "Close sessions, or open this one with a smaller profile",
    Resource.EGRESS_BYTES_A_DAY: "Wait until midnight (UTC)",
}


class Quota(FrozenModel):
    """One limit of a tenant, and its usage."""

    resource: Resource
    used: int
    limit: int
    """0: unlimited."""
    own: bool
    """False: the installation's default."""


class TenantQuotas:
    """Implements `codesdk.domain.quotas.Quotas` on one database. Safe to use from any thread."""

    def __init__(self, defaults: Mapping[Resource, int]) -> None:
        """Create the quotas. `defaults`: limits for tenants without their own; 0: unlimited."""
        self._defaults = dict(defaults)

    def reserve(self, unit: Unit, tenant: TenantId, resource: Resource, amount: int = 1) -> None:
        """Reserve `amount` for `unit`, or refuse. If the unit fails afterwards, nothing stays reserved.

        Usage is counted from rows, before the unit adds its own: reserve first, then insert.

        Raises:
            QuotaExceeded: with the resource, the usage and advice.
        """
        store.lock(unit.connection, tenant)
        limits, used = store.limits_and_usage(unit.connection, tenant, resource)
        limit = self._limit(limits, resource)
        if limit != UNLIMITED and used + amount > limit:
            raise _quota_fault(resource, used, limit, amount)
        if resource is Resource.ARTIFACT_BYTES and not store.add_bytes(unit.connection, tenant, amount, limit):
            raise InternalFault(f"The artifact bytes of {tenant} changed under their lock.")

    def release(self, unit: Unit, tenant: TenantId, resource: Resource, amount: int) -> None:
        """Release what `unit` removes. Only artifact bytes need it; other resources are counted from rows.

        Raises:
            InternalFault: the tenant's usage is lower; nothing was changed.
        """
        if resource is Resource.ARTIFACT_BYTES and not store.subtract_bytes(unit.connection, tenant, amount):
            raise InternalFault(f"{amount} artifact bytes of {tenant} were given back, which it does not hold.")

    def reserve_egress(self, unit: Unit, tenant: TenantId, asked: int, *, least: int = 1) -> EgressReservation:
        """Reserve up to `asked` bytes of egress: fewer if little is left of the day, never below `least`.

        Raises:
            QuotaExceeded: fewer than `least` are left.
        """
        resource = Resource.EGRESS_BYTES_A_DAY
        store.lock(unit.connection, tenant)
        limits, used = store.limits_and_usage(unit.connection, tenant, resource)
        limit = self._limit(limits, resource)
        amount = max(asked, least)
        if limit != UNLIMITED:
            left = limit - used
            if left < least:
                raise _quota_fault(resource, used, limit, least)
            amount = min(amount, max(least, left // EGRESS_SHARE))
        return EgressReservation(amount, store.add_egress(unit.connection, tenant, amount))

    def give_back(self, unit: Unit, tenant: TenantId, taken: EgressReservation) -> None:
        """Return reserved bytes of egress that were not used. Ignored if their day is over."""
        store.subtract_egress(unit.connection, tenant, taken)

    def lock_tenant(self, unit: Unit, tenant: TenantId) -> None:
        """Lock the tenant until `unit` ends, against other reservations and new principals."""
        store.lock(unit.connection, tenant)

    def report(self, database: Database, tenant: TenantId) -> list[Quota]:
        """Report every limit of the tenant with its usage."""
        return [self.find(database, tenant, resource) for resource in Resource]

    @staticmethod
    def exceeded(quota: Quota, asked: int) -> QuotaExceeded:
        """Build the fault of a quota that has no room for `asked` more."""
        return _quota_fault(quota.resource, quota.used, quota.limit, asked)

    def set_limits(self, unit: Unit, tenant: TenantId, changes: Mapping[Resource, int | None]) -> None:
        """Set the tenant's own limits (0: unlimited). None restores the installation's default.

        A limit below the current usage removes nothing; it only prevents more.
        """
        store.lock(unit.connection, tenant)
        store.set_limits(unit.connection, tenant, changes)

    def find(self, database: Database, tenant: TenantId, resource: Resource) -> Quota:
        """Return one limit of the tenant with its usage."""
        with database.read() as connection:
            limits, used = store.limits_and_usage(connection, tenant, resource)
        own = resource.value in limits
        return Quota(resource=resource, used=used, limit=self._limit(limits, resource), own=own)

    def _limit(self, limits: Mapping[str, int], resource: Resource) -> int:
        return limits.get(resource.value, self._defaults.get(resource, UNLIMITED))


_RAISE_ADVICE = "have an operator of the installation raise the limit (`codesdk tenants quota`)."


def _quota_fault(resource: Resource, used: int, limit: int, asked: int) -> QuotaExceeded:
    kind = QueueFull if resource in (Resource.QUEUED_CALLS, Resource.RUNNING_CALLS) else QuotaExceeded
    return kind(resource, used=used, limit=limit, asked=asked, advice=f"{_ADVICE[resource]}, or {_RAISE_ADVICE}")
