"""What the commands of administration need of an installation, wherever they find it."""

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
    """What the commands need. Both implementations pass tests/integration/api/test_office.py."""

    def tenants(self) -> list[Tenant]:
        """All of them."""
        ...

    def create_tenant(self, name: str) -> Tenant:
        """A new one."""
        ...

    def set_weight(self, tenant: TenantId, weight: int) -> Tenant:
        """Give it another share of each host."""
        ...

    def allow_yolo(self, tenant: TenantId, *, allowed: bool) -> Tenant:
        """Let its sessions have the mode `yolo`, or not."""
        ...

    def suspend(self, tenant: TenantId) -> Tenant:
        """Stop its keys and tokens."""
        ...

    def resume(self, tenant: TenantId) -> Tenant:
        """Undo that."""
        ...

    def quotas(self, tenant: TenantId) -> list[Quota]:
        """Its limits, and what is used."""
        ...

    def set_limits(self, tenant: TenantId, changes: Mapping[Resource, int | None]) -> list[Quota]:
        """Limits of its own."""
        ...

    def principals(self, tenant: TenantId) -> list[PrincipalRecord]:
        """Its people and programs."""
        ...

    def create_principal(
        self,
        tenant: TenantId,
        name: str,
        roles: tuple[Role, ...],
        kind: PrincipalKind,
        reach: Reach = Reach.TENANT,
    ) -> PrincipalRecord:
        """A new one."""
        ...

    def groups(self, tenant: TenantId) -> list[Group]:
        """Its groups."""
        ...

    def update_groups(
        self, principal: PrincipalId, join: tuple[str, ...] = (), leave: tuple[str, ...] = ()
    ) -> list[str]:
        """Change a principal's groups; those that it is in then."""
        ...

    def keys(self, tenant: TenantId) -> list[ApiKey]:
        """Its keys."""
        ...

    def create_key(self, principal: PrincipalId, name: str, ttl_s: float | None) -> NewKey:
        """A new one."""
        ...

    def revoke_key(self, key: str) -> ApiKey:
        """End it."""
        ...

    def hosts(self) -> list[HostRecord]:
        """All of them."""
        ...

    def host(self, wanted: str) -> HostRecord:
        """The one of that name or id."""
        ...

    def change_host(self, wanted: str, change: HostChange) -> HostRecord:
        """Drain it, put it back, or give it up."""
        ...

    def servers(self) -> list[ServerRecord]:
        """The MCP servers of all hosts."""
        ...


def tenant_of(office: AdminClient, wanted: str) -> Tenant:
    """The tenant of that name or id.

    Raises:
        TenantUnknown: none.
    """
    found = next((each for each in office.tenants() if wanted in (each.id, each.name)), None)
    if found is None:
        raise TenantUnknown(f"There is no tenant {wanted}.", advice="`codesdk tenants list` shows them.")
    return found
