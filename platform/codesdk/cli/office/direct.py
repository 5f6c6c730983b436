"""Administration on the data directory itself, where no daemon runs."""

from __future__ import annotations

from collections.abc import Mapping

from codesdk.cli.office.office import HostChange
from codesdk.domain.ids import PrincipalId, TenantId
from codesdk.domain.quotas import Resource
from codesdk.hosts import HostRecord, Hosts
from codesdk.sources.roster import Roster
from codesdk.sources.server_status import ServerRecord
from codesdk.tenancy.administration import Administration
from codesdk.tenancy.keys import ApiKey, NewKey
from codesdk.tenancy.principal import Group, Principal, PrincipalKind, PrincipalRecord, Reach, Role
from codesdk.tenancy.quotas import Quota
from codesdk.tenancy.tenant import Tenant

HOLDER = Principal(
    id=PrincipalId("data-directory"),
    tenant_id=TenantId(""),
    name="data-directory",
    roles=tuple(Role),
    reach=Reach.INSTANCE,
)
"""Whoever can write the data directory can do all of this anyway; its name is what the log says of who did it."""


class DirectOffice:
    """On the data directory."""

    def __init__(self, administration: Administration, hosts: Hosts, servers: Roster) -> None:
        self._office = administration
        self._hosts = hosts
        self._servers = servers

    def tenants(self) -> list[Tenant]:
        """All of them."""
        return self._office.tenants(HOLDER)

    def create_tenant(self, name: str) -> Tenant:
        """A new one."""
        return self._office.create_tenant(HOLDER, name)

    def weigh(self, tenant: TenantId, weight: int) -> Tenant:
        """Give it another share of each host."""
        return self._office.weigh(HOLDER, tenant, weight)

    def allow_yolo(self, tenant: TenantId, *, allowed: bool) -> Tenant:
        """Let its sessions have the mode `yolo`, or not."""
        return self._office.allow_yolo(HOLDER, tenant, allowed=allowed)

    def suspend(self, tenant: TenantId) -> Tenant:
        """Stop its keys and tokens."""
        return self._office.suspend(HOLDER, tenant)

    def resume(self, tenant: TenantId) -> Tenant:
        """Undo that."""
        return self._office.resume(HOLDER, tenant)

    def quotas(self, tenant: TenantId) -> list[Quota]:
        """Its limits, and what is used."""
        return self._office.quotas(HOLDER, tenant)

    def set_limits(self, tenant: TenantId, changes: Mapping[Resource, int | None]) -> list[Quota]:
        """Limits of its own."""
        return self._office.set_limits(HOLDER, tenant, changes)

    def principals(self, tenant: TenantId) -> list[PrincipalRecord]:
        """Its people and programs."""
        return self._office.principals(HOLDER, tenant)

    def create_principal(
        self,
        tenant: TenantId,
        name: str,
        roles: tuple[Role, ...],
        kind: PrincipalKind,
        reach: Reach = Reach.TENANT,
    ) -> PrincipalRecord:
        """A new one."""
        return self._office.create_principal(HOLDER, tenant, name, roles, kind=kind, reach=reach)

    def groups(self, tenant: TenantId) -> list[Group]:
        """Its groups."""
        return self._office.groups(HOLDER, tenant)

    def regroup(self, principal: PrincipalId, join: tuple[str, ...] = (), leave: tuple[str, ...] = ()) -> list[str]:
        """Change a principal's groups."""
        return self._office.regroup(HOLDER, principal, join=join, leave=leave)

    def keys(self, tenant: TenantId) -> list[ApiKey]:
        """Its keys."""
        return self._office.keys(HOLDER, tenant)

    def create_key(self, principal: PrincipalId, name: str, ttl_s: float | None) -> NewKey:
        """A new one."""
        return self._office.create_key(HOLDER, principal, name, ttl_s)

    def revoke_key(self, key: str) -> ApiKey:
        """End it."""
        return self._office.revoke_key(HOLDER, key)

    def hosts(self) -> list[HostRecord]:
        """All of them."""
        return self._hosts.listing(HOLDER)

    def host(self, wanted: str) -> HostRecord:
        """The one of that name or id."""
        return self._hosts.find(HOLDER, wanted)

    def change_host(self, wanted: str, change: HostChange) -> HostRecord:
        """Drain it, put it back, or give it up; in the last case its sessions end when a process runs again."""
        done: HostRecord = getattr(self._hosts, change)(HOLDER, wanted)
        return done

    def servers(self) -> list[ServerRecord]:
        """The MCP servers of all hosts."""
        return self._servers.listing(HOLDER)
