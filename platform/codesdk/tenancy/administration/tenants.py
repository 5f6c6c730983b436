"""Administration of tenants and their limits."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from codesdk.domain.ids import IdKind, TenantId
from codesdk.domain.quotas import Resource
from codesdk.eventlog.audit import AuditAction
from codesdk.storage.writer import Unit
from codesdk.tenancy import store
from codesdk.tenancy.access import Action, Allowed, Target, decide_access, require
from codesdk.tenancy.administration.service import AdminService, tenant_unknown
from codesdk.tenancy.principal import Principal
from codesdk.tenancy.quotas import Quota
from codesdk.tenancy.tenant import OwnTenant, Tenant, TenantTaken

_log = logging.getLogger(__name__)


class TenantAdmin(AdminService):
    """Made, suspended, weighed and limited."""

    def tenants(self, caller: Principal) -> list[Tenant]:
        """Those that the caller may see, oldest first."""
        with self._database.read() as connection:
            found = store.all_tenants(connection)
        return [tenant for tenant in found if not _not_visible(caller, tenant.id)]

    def tenant(self, caller: Principal, tenant: str) -> Tenant:
        """One.

        Raises:
            TenantUnknown: not there, or not for this caller.
        """
        return self._authorize_tenant(caller, Action.TENANTS_READ, tenant)

    def create_tenant(self, caller: Principal, name: str) -> Tenant:
        """A new one, with the installation's limits and nobody in it.

        Raises:
            Forbidden, TenantTaken: nothing was made.
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
        _log.info("%s made tenant %s", caller.id, made.id)
        return made

    def suspend(self, caller: Principal, tenant: str) -> Tenant:
        """From now on its keys and tokens open nothing, and none of its calls starts. What runs ends by itself.

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
        """Its keys and tokens are good again, those that have not ended meanwhile.

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
        """Give it `weight` calls where a tenant of weight 1 gets one, while calls of both wait for a host.

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
        """Let its sessions have the permission mode `yolo`, or not; open ones that have it behave as in `auto` then.

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
        """Every limit of the tenant, and how much of it is taken.

        Raises:
            TenantUnknown: not there, or not for this caller.
        """
        return self._quotas.report(self._database, self._authorize_tenant(caller, Action.QUOTAS_READ, tenant).id)

    def set_limits(self, caller: Principal, tenant: str, changes: Mapping[Resource, int | None]) -> list[Quota]:
        """Give the tenant limits of its own (0: none), or with None the installation's again.

        Raises:
            Forbidden, TenantUnknown: nothing was changed.
        """
        found = self._authorize_tenant(caller, Action.QUOTAS_SET, tenant)

        def change(unit: Unit) -> None:
            self._quotas.set_limits(unit, found.id, changes)
            # As text where it is past what canonical JSON takes for a number.
            limits = {resource.value: None if amount is None else str(amount) for resource, amount in changes.items()}
            self._audit(unit, caller, found.id, AuditAction.QUOTAS_SET, found.id, limits=limits)

        self._writer.run(change)
        said = ", ".join(f"{resource.value}={amount}" for resource, amount in changes.items())
        _log.info("%s set limits of tenant %s: %s", caller.id, found.id, said)
        return self._quotas.report(self._database, found.id)


def _not_visible(caller: Principal, tenant: TenantId) -> bool:
    return not isinstance(decide_access(caller, Action.TENANTS_READ, Target(tenant_id=tenant)), Allowed)
