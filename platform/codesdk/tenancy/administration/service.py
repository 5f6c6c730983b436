"""Shared base of the administration services: authorisation and the audit trail."""

from __future__ import annotations

from typing import Any

from codesdk.domain.clock import Clock
from codesdk.domain.ids import Ids, TenantId
from codesdk.eventlog.audit import INSTALLATION, AuditAction, AuditTrail
from codesdk.eventlog.audit import store as audit_store
from codesdk.eventlog.audit.entry import Entry
from codesdk.storage.database import Database
from codesdk.storage.writer import Unit, Writer
from codesdk.tenancy import store
from codesdk.tenancy.access import Action, Target, decide_access, require
from codesdk.tenancy.identity_directory import IdentityDirectory
from codesdk.tenancy.principal import Principal, Reach
from codesdk.tenancy.quotas import TenantQuotas
from codesdk.tenancy.tenant import Tenant, TenantUnknown


class AdminService:
    """Base of the administration services. Each method takes the caller and authorises it with `decide_access`.

    Safe to use from any thread.
    """

    def __init__(
        self,
        *,
        database: Database,
        writer: Writer,
        directory: IdentityDirectory,
        quotas: TenantQuotas,
        clock: Clock,
        ids: Ids,
    ) -> None:
        self._database = database
        self._writer = writer
        self._directory = directory
        self._quotas = quotas
        self._clock = clock
        self._ids = ids
        self._trail = AuditTrail(clock)

    def audit(self, caller: Principal, chain: str, after: int, limit: int) -> list[Entry]:
        """Return audit entries after number `after`, in order, of a tenant or of the chain `installation`.

        Raises:
            Forbidden, TenantUnknown: see `decide_access`.
        """
        if chain == INSTALLATION:
            target = Target(tenant_id=TenantId(INSTALLATION))
            require(decide_access(caller, Action.AUDIT_READ, target), tenant_unknown(chain))
        else:
            self._authorize_tenant(caller, Action.AUDIT_READ, chain)
        with self._database.read() as connection:
            return audit_store.after(connection, chain, after, limit)

    def _audit(
        self, unit: Unit, caller: Principal, tenant: TenantId, act: AuditAction, target: str, **details: Any
    ) -> None:
        self._trail.record(unit, tenant, act, actor=caller.id, target=target, **details)

    def _authorize_tenant(self, caller: Principal, action: Action, tenant: str, reach: Reach = Reach.TENANT) -> Tenant:
        with self._database.read() as connection:
            found = store.tenant(connection, tenant)
        target = Target(tenant_id=TenantId(tenant), reach=reach)
        require(decide_access(caller, action, target), tenant_unknown(tenant))
        if found is None:
            raise tenant_unknown(tenant)
        return found

    def _now(self) -> float:
        return self._clock.now().timestamp()


def tenant_unknown(tenant: str) -> TenantUnknown:
    """Build the fault for a tenant that doesn't exist or that the caller may not see."""
    return TenantUnknown(f"There is no tenant {tenant}.")
