"""The record of what administrators did."""

from __future__ import annotations

from codesdk.domain.ids import TenantId
from codesdk.eventlog.audit import INSTALLATION
from codesdk.eventlog.audit import store as audit_store
from codesdk.eventlog.audit.entry import Entry
from codesdk.tenancy.access import Action, Target, decide_access, require
from codesdk.tenancy.administration.service import AdminService, tenant_unknown
from codesdk.tenancy.principal import Principal


class AuditAdmin(AdminService):
    """Read."""

    def audit(self, caller: Principal, chain: str, after: int, limit: int) -> list[Entry]:
        """A tenant's entries after that number, or those of `installation`, in order.

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
