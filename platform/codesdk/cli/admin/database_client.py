"""Administration directly on the database, while no daemon runs."""

from __future__ import annotations

from collections.abc import Mapping

from codesdk.cli.admin.client import HostChange
from codesdk.domain.ids import PrincipalId, TenantId
from codesdk.domain.quotas import Resource
from codesdk.hosts import HostRecord, HostService
from codesdk.sources.servers.server_list import ServerList
from codesdk.sources.servers.server_status import ServerRecord
from codesdk.tenancy.administration import Administration
from codesdk.tenancy.keys import ApiKey, NewKey
from codesdk.tenancy.principal import Group, Principal, PrincipalKind, PrincipalRecord, Reach, Role
from codesdk.tenancy.quotas import Quota
from codesdk.tenancy.tenant import Tenant

DATA_DIRECTORY_PRINCIPAL = Principal(
    id=PrincipalId("data-directory"),
    tenant_id=TenantId(""),
    name="data-directory",
    roles=tuple(Role),
    reach=Reach.INSTANCE,
)
"""The audit trail records this principal. No further check: a user who can write the data directory controls the
installation.
"""


class DatabaseAdminClient:
    """Administers the installation through its services."""

    def __init__(self, administration: Administration, hosts: HostService, servers: ServerList) -> None:
        self._office = administration
        self._hosts = hosts
        self._servers = servers

    def tenants(self) -> list[Tenant]:
        """List all tenants."""
        return self._office.tenants(DATA_DIRECTORY_PRINCIPAL)

    def create_tenant(self, name: str) -> Tenant:
        """Create a tenant."""
        return self._office.create_tenant(DATA_DIRECTORY_PRINCIPAL, name)

    def set_weight(self, tenant: TenantId, weight: int) -> Tenant:
        """Set the tenant's share of each host."""
        return self._office.set_weight(DATA_DIRECTORY_PRINCIPAL, tenant, weight)

    def allow_yolo(self, tenant: TenantId, *, allowed: bool) -> Tenant:
        """Allow or forbid the permission mode `yolo` for the tenant's sessions."""
        return self._office.allow_yolo(DATA_DIRECTORY_PRINCIPAL, tenant, allowed=allowed)

    def suspend(self, tenant: TenantId) -> Tenant:
        """Suspend a tenant: its keys and tokens stop working."""
        return self._office.suspend(DATA_DIRECTORY_PRINCIPAL, tenant)

    def resume(self, tenant: TenantId) -> Tenant:
        """Resume a suspended tenant."""
        return self._office.resume(DATA_DIRECTORY_PRINCIPAL, tenant)

    def quotas(self, tenant: TenantId) -> list[Quota]:
        """List the tenant's quotas and usage."""
        return self._office.quotas(DATA_DIRECTORY_PRINCIPAL, tenant)

    def set_limits(self, tenant: TenantId, changes: Mapping[Resource, int | None]) -> list[Quota]:
        """Set the tenant's own limits."""
        return self._office.set_limits(DATA_DIRECTORY_PRINCIPAL, tenant, changes)

    def principals(self, tenant: TenantId) -> list[PrincipalRecord]:
        """List the tenant's principals."""
        return self._office.principals(DATA_DIRECTORY_PRINCIPAL, tenant)

    def create_principal(
        self,
        tenant: TenantId,
        name: str,
        roles: tuple[Role, ...],
        kind: PrincipalKind,
        reach: Reach = Reach.TENANT,
    ) -> PrincipalRecord:
        """Create a principal."""
        return self._office.create_principal(DATA_DIRECTORY_PRINCIPAL, tenant, name, roles, kind=kind, reach=reach)

    def groups(self, tenant: TenantId) -> list[Group]:
        """List the tenant's groups."""
        return self._office.groups(DATA_DIRECTORY_PRINCIPAL, tenant)

    def update_groups(
        self, principal: PrincipalId, join: tuple[str, ...] = (), leave: tuple[str, ...] = ()
    ) -> list[str]:
        """Add a principal to groups and remove it from others; return its groups afterwards."""
        return self._office.update_groups(DATA_DIRECTORY_PRINCIPAL, principal, join=join, leave=leave)

    def keys(self, tenant: TenantId) -> list[ApiKey]:
        """List the tenant's API keys."""
        return self._office.keys(DATA_DIRECTORY_PRINCIPAL, tenant)

    def create_key(self, principal: PrincipalId, name: str, ttl_s: float | None) -> NewKey:
        """Create an API key."""
        return self._office.create_key(DATA_DIRECTORY_PRINCIPAL, principal, name, ttl_s)

    def revoke_key(self, key: str) -> ApiKey:
        """Revoke an API key."""
        return self._office.revoke_key(DATA_DIRECTORY_PRINCIPAL, key)

    def hosts(self) -> list[HostRecord]:
        """List all hosts."""
        return self._hosts.listing(DATA_DIRECTORY_PRINCIPAL)

    def host(self, wanted: str) -> HostRecord:
        """Get a host by name or id."""
        return self._hosts.find(DATA_DIRECTORY_PRINCIPAL, wanted)

    def change_host(self, wanted: str, change: HostChange) -> HostRecord:
        """Drain a host, activate it, or declare it lost. Sessions of a lost host end when the next process starts."""
        done: HostRecord = getattr(self._hosts, change)(DATA_DIRECTORY_PRINCIPAL, wanted)
        return done

    def servers(self) -> list[ServerRecord]:
        """List the running MCP servers of all hosts."""
        return self._servers.listing(DATA_DIRECTORY_PRINCIPAL)
