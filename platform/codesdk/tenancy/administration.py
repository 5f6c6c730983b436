"""Tenants, principals, keys and limits, made and ended by whoever may: HTTP and the command line both come here."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Any

from codesdk.domain.clock import Clock
from codesdk.domain.ids import Ids, Kind, PrincipalId, TenantId
from codesdk.domain.quotas import Resource
from codesdk.eventlog.audit import INSTALLATION, Act, Trail
from codesdk.eventlog.audit import store as audit_store
from codesdk.eventlog.audit.entry import Entry
from codesdk.storage.database import Database
from codesdk.storage.writer import Unit, Writer
from codesdk.tenancy import store
from codesdk.tenancy.access import Action, Allowed, Target, decide_access, require
from codesdk.tenancy.directory import Directory
from codesdk.tenancy.keys import ApiKey, KeyUnknown, NewKey
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
from codesdk.tenancy.quotas import Quota, TenantQuotas
from codesdk.tenancy.tenant import OwnTenant, Tenant, TenantTaken, TenantUnknown

_log = logging.getLogger(__name__)


class Administration:
    """Each verb takes who asks, and decides by `decide_access`. Safe to use from any thread."""

    def __init__(
        self,
        *,
        database: Database,
        writer: Writer,
        directory: Directory,
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
        self._trail = Trail(clock)

    # -- tenants -----------------------------------------------------------------------------------------------------

    def tenants(self, caller: Principal) -> list[Tenant]:
        """Those that the caller may see, oldest first."""
        with self._database.read() as connection:
            found = store.all_tenants(connection)
        return [tenant for tenant in found if not _unseen(caller, tenant.id)]

    def tenant(self, caller: Principal, tenant: str) -> Tenant:
        """One.

        Raises:
            TenantUnknown: not there, or not for this caller.
        """
        return self._tenant(caller, Action.TENANTS_READ, tenant)

    def create_tenant(self, caller: Principal, name: str) -> Tenant:
        """A new one, with the installation's limits and nobody in it.

        Raises:
            Forbidden, TenantTaken: nothing was made.
        """
        id_ = TenantId(self._ids.new(Kind.TENANT))
        require(decide_access(caller, Action.TENANTS_MANAGE, Target(tenant_id=id_)), _no_tenant(id_))

        def create(unit: Unit) -> Tenant:
            if store.tenant_named(unit.connection, name) is not None:
                raise TenantTaken(f"There is a tenant {name}.", advice="Choose another name.")
            made = self._directory.add_tenant(unit, id_, name)
            self._keep(unit, caller, made.id, Act.TENANT_CREATED, made.id, name=name)
            return made

        made = self._writer.run(create)
        _log.info("%s made tenant %s", caller.id, made.id)
        return made

    def suspend(self, caller: Principal, tenant: str) -> Tenant:
        """From now on its keys and tokens open nothing, and none of its calls starts. What runs ends by itself.

        Raises:
            Forbidden, TenantUnknown, OwnTenant: nothing was changed.
        """
        found = self._tenant(caller, Action.TENANTS_MANAGE, tenant)
        if found.id == caller.tenant_id:
            raise OwnTenant(
                "You belong to this tenant: you could not resume it.",
                advice="Suspend it from the data directory, with `codesdk tenants suspend` while nothing runs.",
            )

        def suspend(unit: Unit) -> None:
            store.set_suspended(unit.connection, found.id, self._now())
            self._keep(unit, caller, found.id, Act.TENANT_SUSPENDED, found.id)

        self._writer.run(suspend)
        _log.info("%s suspended tenant %s", caller.id, found.id)
        return self.tenant(caller, tenant)

    def resume(self, caller: Principal, tenant: str) -> Tenant:
        """Its keys and tokens are good again, those that have not ended meanwhile.

        Raises:
            Forbidden, TenantUnknown: nothing was changed.
        """
        found = self._tenant(caller, Action.TENANTS_MANAGE, tenant)

        def resume(unit: Unit) -> None:
            store.set_suspended(unit.connection, found.id, None)
            self._keep(unit, caller, found.id, Act.TENANT_RESUMED, found.id)

        self._writer.run(resume)
        _log.info("%s resumed tenant %s", caller.id, found.id)
        return self.tenant(caller, tenant)

    def weigh(self, caller: Principal, tenant: str, weight: int) -> Tenant:
        """Give it `weight` calls where a tenant of weight 1 gets one, while calls of both wait for a host.

        Raises:
            Forbidden, TenantUnknown: nothing was changed.
        """
        found = self._tenant(caller, Action.TENANTS_MANAGE, tenant)

        def weigh(unit: Unit) -> None:
            store.set_weight(unit.connection, found.id, weight)
            self._keep(unit, caller, found.id, Act.TENANT_WEIGHED, found.id, weight=weight)

        self._writer.run(weigh)
        _log.info("%s gave tenant %s the weight %d", caller.id, found.id, weight)
        return self.tenant(caller, tenant)

    def allow_yolo(self, caller: Principal, tenant: str, *, allowed: bool) -> Tenant:
        """Let its sessions have the permission mode `yolo`, or not; open ones that have it behave as in `auto` then.

        Raises:
            Forbidden, TenantUnknown: nothing was changed.
        """
        found = self._tenant(caller, Action.TENANTS_MANAGE, tenant)

        def allow(unit: Unit) -> None:
            store.set_yolo(unit.connection, found.id, allowed=allowed)
            self._keep(unit, caller, found.id, Act.TENANT_YOLO_SET, found.id, allowed=allowed)

        self._writer.run(allow)
        _log.info("%s set yolo of tenant %s: %s", caller.id, found.id, allowed)
        return self.tenant(caller, tenant)

    # -- quotas ------------------------------------------------------------------------------------------------------

    def quotas(self, caller: Principal, tenant: str) -> list[Quota]:
        """Every limit of the tenant, and how much of it is taken.

        Raises:
            TenantUnknown: not there, or not for this caller.
        """
        return self._quotas.report(self._database, self._tenant(caller, Action.QUOTAS_READ, tenant).id)

    def set_limits(self, caller: Principal, tenant: str, changes: Mapping[Resource, int | None]) -> list[Quota]:
        """Give the tenant limits of its own (0: none), or with None the installation's again.

        Raises:
            Forbidden, TenantUnknown: nothing was changed.
        """
        found = self._tenant(caller, Action.QUOTAS_SET, tenant)

        def change(unit: Unit) -> None:
            self._quotas.set_limits(unit, found.id, changes)
            # As text where it is past what canonical JSON takes for a number.
            limits = {resource.value: None if amount is None else str(amount) for resource, amount in changes.items()}
            self._keep(unit, caller, found.id, Act.QUOTAS_SET, found.id, limits=limits)

        self._writer.run(change)
        said = ", ".join(f"{resource.value}={amount}" for resource, amount in changes.items())
        _log.info("%s set limits of tenant %s: %s", caller.id, found.id, said)
        return self._quotas.report(self._database, found.id)

    # -- principals --------------------------------------------------------------------------------------------------

    def principals(self, caller: Principal, tenant: str) -> list[PrincipalRecord]:
        """The tenant's, oldest first.

        Raises:
            Forbidden, TenantUnknown: see `decide_access`.
        """
        found = self._tenant(caller, Action.PRINCIPALS_READ, tenant)
        with self._database.read() as connection:
            return store.principals_of(connection, found.id)

    def principal(self, caller: Principal, principal: str, action: Action = Action.PRINCIPALS_READ) -> PrincipalRecord:
        """One that the caller may do `action` to.

        Raises:
            Forbidden, PrincipalUnknown: see `decide_access`.
        """
        unknown = PrincipalUnknown(f"There is no principal {principal}.")
        with self._database.read() as connection:
            found = store.principal(connection, principal)
        if found is None:
            raise unknown
        # Who is there may be seen by all who see the tenant; only what changes it asks for the reach.
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
        """A new one, without a key.

        Raises:
            Forbidden, TenantUnknown, PrincipalTaken: nothing was made.
        """
        found = self._tenant(caller, Action.PRINCIPALS_MANAGE, tenant, reach)
        id_ = PrincipalId(self._ids.new(Kind.PRINCIPAL))
        made = Principal(id=id_, tenant_id=found.id, name=name, roles=roles, kind=kind, reach=reach)

        def create(unit: Unit) -> None:
            self._quotas.hold(unit, found.id)  # two at once must not both find the name free
            if store.principal_named(unit.connection, found.id, name) is not None:
                raise PrincipalTaken(f"The tenant has a principal {name}.", advice="Choose another name.")
            store.insert_principal(unit.connection, made, self._now())
            known = {"name": name, "roles": [role.value for role in roles], "reach": reach.value}
            self._keep(unit, caller, found.id, Act.PRINCIPAL_CREATED, made.id, **known)

        self._writer.run(create)
        _log.info("%s made principal %s of tenant %s", caller.id, made.id, found.id)
        return self.principal(caller, made.id)

    def disable(self, caller: Principal, principal: str) -> PrincipalRecord:
        """From now on its keys open nothing, nor do its sessions' tokens, and none of its calls starts. For good.

        Raises:
            Forbidden, PrincipalUnknown: nothing was changed.
        """
        found = self.principal(caller, principal, Action.PRINCIPALS_MANAGE)

        def disable(unit: Unit) -> None:
            store.disable(unit.connection, found.id, self._now())
            self._keep(unit, caller, found.tenant_id, Act.PRINCIPAL_DISABLED, found.id)

        self._writer.run(disable)
        _log.info("%s disabled principal %s", caller.id, found.id)
        return self.principal(caller, principal)

    # -- groups ------------------------------------------------------------------------------------------------------

    def groups(self, caller: Principal, tenant: str) -> list[Group]:
        """The tenant's, by name.

        Raises:
            Forbidden, TenantUnknown: see `decide_access`.
        """
        found = self._tenant(caller, Action.PRINCIPALS_READ, tenant)
        with self._database.read() as connection:
            members = store.groups_of(connection, found.id)
        return [Group(name=name, members=tuple(ids)) for name, ids in members.items()]

    def regroup(
        self, caller: Principal, principal: str, *, join: Collection[str] = (), leave: Collection[str] = ()
    ) -> list[str]:
        """Change which groups a principal is in; returns those that it is in then. What is so already is no error.

        Raises:
            Forbidden, PrincipalUnknown: nothing was changed.
        """
        found = self.principal(caller, principal, Action.PRINCIPALS_MANAGE)

        def change(unit: Unit) -> None:
            self._quotas.hold(unit, found.tenant_id)  # two at once must not both add the same
            for name in join:
                store.join_group(unit.connection, found, name)
            for name in leave:
                store.leave_group(unit.connection, found, name)
            known = {"joins": sorted(join), "leaves": sorted(leave)}
            self._keep(unit, caller, found.tenant_id, Act.PRINCIPAL_REGROUPED, found.id, **known)

        self._writer.run(change)
        _log.info("%s regrouped principal %s: joins %s, leaves %s", caller.id, found.id, list(join), list(leave))
        with self._database.read() as connection:
            return [name for name, ids in store.groups_of(connection, found.tenant_id).items() if found.id in ids]

    # -- keys --------------------------------------------------------------------------------------------------------

    def keys(self, caller: Principal, tenant: str) -> list[ApiKey]:
        """The tenant's, oldest first, with those that are over.

        Raises:
            Forbidden, TenantUnknown: see `decide_access`.
        """
        found = self._tenant(caller, Action.KEYS_READ, tenant)
        with self._database.read() as connection:
            return store.keys_of(connection, found.id)

    def create_key(self, caller: Principal, principal: str, name: str, ttl_s: float | None = None) -> NewKey:
        """A new key of that principal, shown this once. `ttl_s`: seconds that it lives; None for ever.

        Raises:
            Forbidden, PrincipalUnknown, QuotaExceeded: nothing was made.
        """
        holder = self.principal(caller, principal, Action.KEYS_MANAGE)

        def mint(unit: Unit) -> NewKey:
            made = self._directory.mint_key(unit, holder.tenant_id, holder.id, name, ttl_s)
            known = {"principal": holder.id, "name": name, "prefix": made.key.prefix, "ttl_s": ttl_s}
            self._keep(unit, caller, holder.tenant_id, Act.KEY_CREATED, made.key.id, **known)
            return made

        made = self._writer.run(mint)
        _log.info("%s made key %s of principal %s", caller.id, made.key.id, holder.id)
        return made

    def revoke_key(self, caller: Principal, key: str) -> ApiKey:
        """End it, at once; revoking twice is no error.

        Raises:
            Forbidden, KeyUnknown: nothing was changed.
        """
        unknown = KeyUnknown(f"There is no key {key}.", advice="`codesdk keys list` shows their ids.")
        with self._database.read() as connection:
            found = store.key(connection, key)
            holder = store.principal(connection, found.principal_id) if found else None
        if found is None or holder is None:
            raise unknown
        target = Target(tenant_id=found.tenant_id, reach=holder.reach)
        require(decide_access(caller, Action.KEYS_MANAGE, target), unknown)

        def revoke(unit: Unit) -> None:
            store.revoke_key(unit.connection, found.id, self._now())
            self._keep(unit, caller, found.tenant_id, Act.KEY_REVOKED, found.id, principal=holder.id)

        self._writer.run(revoke)
        _log.info("%s revoked key %s of principal %s", caller.id, found.id, holder.id)
        with self._database.read() as connection:
            return store.key(connection, key) or found

    # -- audit -------------------------------------------------------------------------------------------------------

    def audit(self, caller: Principal, chain: str, after: int, limit: int) -> list[Entry]:
        """A tenant's entries after that number, or those of `installation`, in order.

        Raises:
            Forbidden, TenantUnknown: see `decide_access`.
        """
        if chain == INSTALLATION:
            target = Target(tenant_id=TenantId(INSTALLATION))
            require(decide_access(caller, Action.AUDIT_READ, target), _no_tenant(chain))
        else:
            self._tenant(caller, Action.AUDIT_READ, chain)
        with self._database.read() as connection:
            return audit_store.after(connection, chain, after, limit)

    def _keep(self, unit: Unit, caller: Principal, tenant: TenantId, act: Act, target: str, **details: Any) -> None:
        self._trail.record(unit, tenant, act, actor=caller.id, target=target, **details)

    def _tenant(self, caller: Principal, action: Action, tenant: str, reach: Reach = Reach.TENANT) -> Tenant:
        with self._database.read() as connection:
            found = store.tenant(connection, tenant)
        target = Target(tenant_id=TenantId(tenant), reach=reach)
        require(decide_access(caller, action, target), _no_tenant(tenant))
        if found is None:
            raise _no_tenant(tenant)
        return found

    def _now(self) -> float:
        return self._clock.now().timestamp()


def _unseen(caller: Principal, tenant: TenantId) -> bool:
    return not isinstance(decide_access(caller, Action.TENANTS_READ, Target(tenant_id=tenant)), Allowed)


def _no_tenant(tenant: str) -> TenantUnknown:
    return TenantUnknown(f"There is no tenant {tenant}.")
