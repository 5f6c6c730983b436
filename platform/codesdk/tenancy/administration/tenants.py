"""Administration of tenants and their limits."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from codesdk.domain.ids import IdKind, TenantId
from codesdk.domain.quotas import Resource
from codesdk.eventlog.audit import AuditAction
from codesdk.storage.writer import Unit
from codesdk.tenancy import store
from codesdk.tenancy.access import AccessAllowed, Action, Target, decide_access, require
from codesdk.tenancy.administration.service import AdminService, tenant_unknown
from codesdk.tenancy.principal import Principal
from codesdk.tenancy.quotas import Quota
from codesdk.tenancy.tenant import OwnTenant, Tenant, TenantTaken

_log = logging.getLogger(__name__)


class TenantAdmin(AdminService):
    """Creates, suspends and resumes tenants, and sets their weights and limits."""

    def tenants(self, caller: Principal) -> list[Tenant]:
        """List the tenants that the caller may see, oldest first."""
        with self._database.read() as connection:
            found = store.all_tenants(connection)
        return [tenant for tenant in found if not _not_visible(caller, tenant.id)]

    def tenant(self, caller: Principal, tenant: str) -> Tenant:
        """Return a tenant.

        Raises:
            TenantUnknown: it doesn't exist, or the caller may not see it.
        """
        return self._authorize_tenant(caller, Action.TENANTS_READ, tenant)

    def create_tenant(self, caller: Principal, name: str) -> Tenant:
        """Create a tenant with the installation's limits and no principals.

        Raises:
            Forbidden, TenantTaken: nothing was created.
        """
        id_ = TenantId(self._ids.new(IdKind.TENANT))
        require(decide_access(caller, Action.TENANTS_MANAGE, Target(tenant_id=id_)), tenant_unknown(id_))

        def create(unit: Unit) -> Tenant:
            if store.tenant_named(unit.connection, name) is not None:
                raise TenantTaken(f"There is a tenant {name}.", advice="Choose another name.")
            made = self._directory.add_tenant(unit, id_, name)
            self._audit(unit, caller, made.id, AuditAction.TENANT_CREATED, made.id, name=name)
            return made

        made = self._writer.run(create)
        _log.info("%s created tenant %s", caller.id, made.id)
        return made

    def suspend(self, caller: Principal, tenant: str) -> Tenant:
        """Suspend the tenant: its keys and tokens stop working, and none of its calls starts. Running calls finish.

        Raises:
            Forbidden, TenantUnknown, OwnTenant: nothing was changed.
        """
        found = self._authorize_tenant(caller, Action.TENANTS_MANAGE, tenant)
        if found.id == caller.tenant_id:
            raise OwnTenant(
                "You belong to this tenant: you could not resume it.",
                advice="Suspend it from the data directory, with `codesdk tenants suspend` while nothing runs.",
            )

        def suspend(unit: Unit) -> None:
            store.set_suspended(unit.connection, found.id, self._now())
            self._audit(unit, caller, found.id, AuditAction.TENANT_SUSPENDED, found.id)

        self._writer.run(suspend)
        _log.info("%s suspended tenant %s", caller.id, found.id)
        return self.tenant(caller, tenant)

    def resume(self, caller: Principal, tenant: str) -> Tenant:
        """Resume the tenant: its keys and tokens work again, unless they have expired or were revoked.

        Raises:
            Forbidden, TenantUnknown: nothing was changed.
        """
        found = self._authorize_tenant(caller, Action.TENANTS_MANAGE, tenant)

        def resume(unit: Unit) -> None:
            store.set_suspended(unit.connection, found.id, None)
            self._audit(unit, caller, found.id, AuditAction.TENANT_RESUMED, found.id)

        self._writer.run(resume)
        _log.info("%s resumed tenant %s", caller.id, found.id)
        return self.tenant(caller, tenant)

    def set_weight(self, caller: Principal, tenant: str, weight: int) -> Tenant:
        """Set the tenant's weight: the calls it runs for each one of a tenant of weight 1, while both have queued calls.

        Raises:
            Forbidden, TenantUnknown: nothing was changed.
        """
        found = self._authorize_tenant(caller, Action.TENANTS_MANAGE, tenant)

        def set_weight(unit: Unit) -> None:
            store.set_weight(unit.connection, found.id, weight)
            self._audit(unit, caller, found.id, AuditAction.TENANT_WEIGHED, found.id, weight=weight)

        self._writer.run(set_weight)
        _log.info("%s gave tenant %s the weight %d", caller.id, found.id, weight)
        return self.tenant(caller, tenant)

    def allow_yolo(self, caller: Principal, tenant: str, *, allowed: bool) -> Tenant:
        """Allow or forbid the permission mode `yolo`. If forbidden, open `yolo` sessions behave as in `auto`.

        Raises:
            Forbidden, TenantUnknown: nothing was changed.
        """
        found = self._authorize_tenant(caller, Action.TENANTS_MANAGE, tenant)

        def allow(unit: Unit) -> None:
            store.set_yolo(unit.connection, found.id, allowed=allowed)
            self._audit(unit, caller, found.id, AuditAction.TENANT_YOLO_SET, found.id, allowed=allowed)

        self._writer.run(allow)
        _log.info("%s set yolo of tenant %s: %s", caller.id, found.id, allowed)
        return self.tenant(caller, tenant)

    def quotas(self, caller: Principal, tenant: str) -> list[Quota]:
        """Report the tenant's limits and usage.

        Raises:
            TenantUnknown: it doesn't exist, or the caller may not see it.
        """
        return self._quotas.report(self._database, self._authorize_tenant(caller, Action.QUOTAS_READ, tenant).id)

    def set_limits(self, caller: Principal, tenant: str, changes: Mapping[Resource, int | None]) -> list[Quota]:
        """Set the tenant's own limits (0: unlimited). None restores the installation's default.

        Raises:
            Forbidden, TenantUnknown: nothing was changed.
        """
        found = self._authorize_tenant(caller, Action.QUOTAS_SET, tenant)

        def change(unit: Unit) -> None:
            self._quotas.set_limits(unit, found.id, changes)
            # As text, because canonical JSON doesn't take numbers this large.
            limits = {resource.value: None if amount is None else str(amount) for resource, amount in changes.items()}
            self._audit(unit, caller, found.id, AuditAction.QUOTAS_SET, found.id, limits=limits)

        self._writer.run(change)
        said = ", ".join(f"{resource.value}={amount}" for resource, amount in changes.items())
        _log.info("%s set limits of tenant %s: %s", caller.id, found.id, said)
        return self._quotas.report(self._database, found.id)


def _not_visible(caller: Principal, tenant: TenantId) -> bool:
    return not isinstance(decide_access(caller, Action.TENANTS_READ, Target(tenant_id=tenant)), AccessAllowed)
