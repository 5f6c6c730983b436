"""Administration of principals and their groups."""

from __future__ import annotations

import logging
from collections.abc import Collection

from codesdk.domain.ids import IdKind, PrincipalId
from codesdk.eventlog.audit import AuditAction
from codesdk.storage.writer import Unit
from codesdk.tenancy import store
from codesdk.tenancy.access import Action, Target, decide_access, require
from codesdk.tenancy.administration.service import AdminService
from codesdk.tenancy.principal import (
    Group,
    Principal,
    PrincipalKind,
    PrincipalRecord,
    PrincipalTaken,
    PrincipalUnknown,
    Reach,
    Role,
)

_log = logging.getLogger(__name__)


class PrincipalAdmin(AdminService):
    """Creates and disables principals, and changes their groups."""

    def principals(self, caller: Principal, tenant: str) -> list[PrincipalRecord]:
        """List the tenant's principals, oldest first.

        Raises:
            Forbidden, TenantUnknown: see `decide_access`.
        """
        found = self._authorize_tenant(caller, Action.PRINCIPALS_READ, tenant)
        with self._database.read() as connection:
            return store.principals_of(connection, found.id)

    def principal(self, caller: Principal, principal: str, action: Action = Action.PRINCIPALS_READ) -> PrincipalRecord:
        """Return a principal, if the caller may perform `action` on it.

        Raises:
            Forbidden, PrincipalUnknown: see `decide_access`.
        """
        unknown = PrincipalUnknown(f"There is no principal {principal}.")
        with self._database.read() as connection:
            found = store.principal(connection, principal)
        if found is None:
            raise unknown
        # Anyone who sees the tenant may see its principals. Only changes need the principal's reach.
        reach = Reach.TENANT if action is Action.PRINCIPALS_READ else found.reach
        require(decide_access(caller, action, Target(tenant_id=found.tenant_id, reach=reach)), unknown)
        return found

    def create_principal(
        self,
        caller: Principal,
        tenant: str,
        name: str,
        roles: tuple[Role, ...],
        *,
        kind: PrincipalKind = PrincipalKind.PERSON,
        reach: Reach = Reach.TENANT,
    ) -> PrincipalRecord:
        """Create a principal, without a key.

        Raises:
            Forbidden, TenantUnknown, PrincipalTaken: nothing was created.
        """
        found = self._authorize_tenant(caller, Action.PRINCIPALS_MANAGE, tenant, reach)
        id_ = PrincipalId(self._ids.new(IdKind.PRINCIPAL))
        made = Principal(id=id_, tenant_id=found.id, name=name, roles=roles, kind=kind, reach=reach)

        def create(unit: Unit) -> None:
            self._quotas.lock_tenant(unit, found.id)  # otherwise two requests at once could both find the name free
            if store.principal_named(unit.connection, found.id, name) is not None:
                raise PrincipalTaken(f"The tenant has a principal {name}.", advice="Choose another name.")
            store.insert_principal(unit.connection, made, self._now())
            known = {"name": name, "roles": [role.value for role in roles], "reach": reach.value}
            self._audit(unit, caller, found.id, AuditAction.PRINCIPAL_CREATED, made.id, **known)

        self._writer.run(create)
        _log.info("%s created principal %s of tenant %s", caller.id, made.id, found.id)
        return self.principal(caller, made.id)

    def disable(self, caller: Principal, principal: str) -> PrincipalRecord:
        """Disable the principal permanently: its keys and session tokens stop working, and none of its calls starts.

        Raises:
            Forbidden, PrincipalUnknown: nothing was changed.
        """
        found = self.principal(caller, principal, Action.PRINCIPALS_MANAGE)

        def disable(unit: Unit) -> None:
            store.disable(unit.connection, found.id, self._now())
            self._audit(unit, caller, found.tenant_id, AuditAction.PRINCIPAL_DISABLED, found.id)

        self._writer.run(disable)
        _log.info("%s disabled principal %s", caller.id, found.id)
        return self.principal(caller, principal)

    def groups(self, caller: Principal, tenant: str) -> list[Group]:
        """List the tenant's groups by name.

        Raises:
            Forbidden, TenantUnknown: see `decide_access`.
        """
        found = self._authorize_tenant(caller, Action.PRINCIPALS_READ, tenant)
        with self._database.read() as connection:
            members = store.groups_of(connection, found.id)
        return [Group(name=name, members=tuple(ids)) for name, ids in members.items()]

    def update_groups(
        self, caller: Principal, principal: str, *, join: Collection[str] = (), leave: Collection[str] = ()
    ) -> list[str]:
        """Add the principal to groups and remove it from others. Returns its groups afterwards. Idempotent.

        Raises:
            Forbidden, PrincipalUnknown: nothing was changed.
        """
        found = self.principal(caller, principal, Action.PRINCIPALS_MANAGE)

        def change(unit: Unit) -> None:
            self._quotas.lock_tenant(unit, found.tenant_id)  # otherwise two requests could both add it
            for name in join:
                store.join_group(unit.connection, found, name)
            for name in leave:
                store.leave_group(unit.connection, found, name)
            known = {"joins": sorted(join), "leaves": sorted(leave)}
            self._audit(unit, caller, found.tenant_id, AuditAction.PRINCIPAL_REGROUPED, found.id, **known)

        self._writer.run(change)
        _log.info("%s regrouped principal %s: joins %s, leaves %s", caller.id, found.id, list(join), list(leave))
        with self._database.read() as connection:
            return [name for name, ids in store.groups_of(connection, found.tenant_id).items() if found.id in ids]
