"""Port of the administration commands, implemented over HTTP and on the database."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol

from codesdk.domain.ids import PrincipalId, TenantId
from codesdk.domain.quotas import Resource
from codesdk.hosts import HostRecord
from codesdk.sources.servers.server_status import ServerRecord
from codesdk.tenancy.keys import ApiKey, NewKey
from codesdk.tenancy.principal import Group, PrincipalKind, PrincipalRecord, Reach, Role
from codesdk.tenancy.quotas import Quota
from codesdk.tenancy.tenant import Tenant, TenantUnknown

HostChange = Literal["drain", "activate", "lose"]


class AdminClient(Protocol):
    """Administers an installation. Both implementations pass tests/integration/api/test_admin_client.py."""

    def tenants(self) -> list[Tenant]:
        """List all tenants."""
        ...

    def create_tenant(self, name: str) -> Tenant:
        """Create a tenant."""
        ...

    def set_weight(self, tenant: TenantId, weight: int) -> Tenant:
        """Set the tenant's share of each host."""
        ...

    def allow_yolo(self, tenant: TenantId, *, allowed: bool) -> Tenant:
        """Allow or forbid the permission mode `yolo` for the tenant's sessions."""
        ...

    def suspend(self, tenant: TenantId) -> Tenant:
        """Suspend a tenant: its keys and tokens stop working."""
        ...

    def resume(self, tenant: TenantId) -> Tenant:
        """Resume a suspended tenant."""
        ...

    def quotas(self, tenant: TenantId) -> list[Quota]:
        """List the tenant's quotas and usage."""
        ...

    def set_limits(self, tenant: TenantId, changes: Mapping[Resource, int | None]) -> list[Quota]:
        """Set the tenant's own limits."""
        ...

    def principals(self, tenant: TenantId) -> list[PrincipalRecord]:
        """List the tenant's principals."""
        ...

    def create_principal(
        self,
        tenant: TenantId,
        name: str,
        roles: tuple[Role, ...],
        kind: PrincipalKind,
        reach: Reach = Reach.TENANT,
    ) -> PrincipalRecord:
        """Create a principal."""
        ...

    def groups(self, tenant: TenantId) -> list[Group]:
        """List the tenant's groups."""
        ...

    def update_groups(
        self, principal: PrincipalId, join: tuple[str, ...] = (), leave: tuple[str, ...] = ()
    ) -> list[str]:
        """Add a principal to groups and remove it from others; return its groups afterwards."""
        ...

    def keys(self, tenant: TenantId) -> list[ApiKey]:
        """List the tenant's API keys."""
        ...

    def create_key(self, principal: PrincipalId, name: str, ttl_s: float | None) -> NewKey:
        """Create an API key."""
        ...

    def revoke_key(self, key: str) -> ApiKey:
        """Revoke an API key."""
        ...

    def hosts(self) -> list[HostRecord]:
        """List all hosts."""
        ...

    def host(self, wanted: str) -> HostRecord:
        """Get a host by name or id."""
        ...

    def change_host(self, wanted: str, change: HostChange) -> HostRecord:
        """Drain a host, activate it, or declare it lost."""
        ...

    def servers(self) -> list[ServerRecord]:
        """List the running MCP servers of all hosts."""
        ...


def tenant_of(admin: AdminClient, wanted: str) -> Tenant:
    """Find a tenant by name or id.

    Raises:
        TenantUnknown: there is none.
    """
    found = next((each for each in admin.tenants() if wanted in (each.id, each.name)), None)
    if found is None:
        raise TenantUnknown(f"There is no tenant {wanted}.", advice="`codesdk tenants list` shows them.")
    return found
