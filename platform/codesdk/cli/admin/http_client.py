"""Administration over the HTTP API of a running daemon."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from codesdk.cli.admin.client import HostChange
from codesdk.cli.api_client import ApiClient
from codesdk.domain.ids import PrincipalId, TenantId
from codesdk.domain.quotas import Resource
from codesdk.hosts import HostRecord
from codesdk.sources.servers.server_status import ServerRecord
from codesdk.tenancy.keys import ApiKey, NewKey
from codesdk.tenancy.principal import Group, PrincipalKind, PrincipalRecord, Reach, Role
from codesdk.tenancy.quotas import Quota
from codesdk.tenancy.tenant import Tenant


class HttpAdminClient:
    """Administers the installation over HTTP with the operator's key."""

    def __init__(self, daemon: ApiClient) -> None:
        self._daemon = daemon

    def tenants(self) -> list[Tenant]:
        """List the tenants that the key may see."""
        found = self._daemon.request("GET", "/v1/tenants")["tenants"]
        return [Tenant.model_validate(each) for each in found]

    def create_tenant(self, name: str) -> Tenant:
        """Create a tenant."""
        return Tenant.model_validate(self._daemon.request("POST", "/v1/tenants", json={"name": name}))

    def set_weight(self, tenant: TenantId, weight: int) -> Tenant:
        """Set the tenant's share of each host."""
        return Tenant.model_validate(self._daemon.request("PATCH", f"/v1/tenants/{tenant}", json={"weight": weight}))

    def allow_yolo(self, tenant: TenantId, *, allowed: bool) -> Tenant:
        """Allow or forbid the permission mode `yolo` for the tenant's sessions."""
        return Tenant.model_validate(self._daemon.request("PATCH", f"/v1/tenants/{tenant}", json={"yolo": allowed}))

    def suspend(self, tenant: TenantId) -> Tenant:
        """Suspend a tenant: its keys and tokens stop working."""
        return Tenant.model_validate(self._daemon.request("POST", f"/v1/tenants/{tenant}/suspend"))

    def resume(self, tenant: TenantId) -> Tenant:
        """Resume a suspended tenant."""
        return Tenant.model_validate(self._daemon.request("POST", f"/v1/tenants/{tenant}/resume"))

    def quotas(self, tenant: TenantId) -> list[Quota]:
        """List the tenant's quotas and usage."""
        return _quotas(self._daemon.request("GET", "/v1/quotas", params={"tenant_id": tenant}))

    def set_limits(self, tenant: TenantId, changes: Mapping[Resource, int | None]) -> list[Quota]:
        """Set the tenant's own limits."""
        limits = {resource.value: amount for resource, amount in changes.items()}
        return _quotas(
            self._daemon.request("PATCH", "/v1/quotas", params={"tenant_id": tenant}, json={"limits": limits})
        )

    def principals(self, tenant: TenantId) -> list[PrincipalRecord]:
        """List the tenant's principals."""
        found = self._daemon.request("GET", "/v1/principals", params={"tenant_id": tenant})["principals"]
        return [PrincipalRecord.model_validate(each) for each in found]

    def create_principal(
        self,
        tenant: TenantId,
        name: str,
        roles: tuple[Role, ...],
        kind: PrincipalKind,
        reach: Reach = Reach.TENANT,
    ) -> PrincipalRecord:
        """Create a principal."""
        wish = {"name": name, "roles": [role.value for role in roles], "kind": kind.value, "reach": reach.value}
        made = self._daemon.request("POST", "/v1/principals", params={"tenant_id": tenant}, json=wish)
        return PrincipalRecord.model_validate(made)

    def groups(self, tenant: TenantId) -> list[Group]:
        """List the tenant's groups."""
        found = self._daemon.request("GET", "/v1/groups", params={"tenant_id": tenant})["groups"]
        return [Group.model_validate(each) for each in found]

    def update_groups(
        self, principal: PrincipalId, join: tuple[str, ...] = (), leave: tuple[str, ...] = ()
    ) -> list[str]:
        """Add a principal to groups and remove it from others; return its groups afterwards."""
        change = {"join": list(join), "leave": list(leave)}
        answer = self._daemon.request("PATCH", f"/v1/principals/{principal}/groups", json=change)
        return [str(name) for name in answer["groups"]]

    def keys(self, tenant: TenantId) -> list[ApiKey]:
        """List the tenant's API keys."""
        found = self._daemon.request("GET", "/v1/keys", params={"tenant_id": tenant})["keys"]
        return [ApiKey.model_validate(each) for each in found]

    def create_key(self, principal: PrincipalId, name: str, ttl_s: float | None) -> NewKey:
        """Create an API key."""
        wish = {"principal_id": principal, "name": name, "ttl_s": ttl_s}
        return NewKey.model_validate(self._daemon.request("POST", "/v1/keys", json=wish))

    def revoke_key(self, key: str) -> ApiKey:
        """Revoke an API key."""
        return ApiKey.model_validate(self._daemon.request("DELETE", f"/v1/keys/{key}"))

    def hosts(self) -> list[HostRecord]:
        """List all hosts."""
        return [HostRecord.model_validate(each) for each in self._daemon.request("GET", "/v1/hosts")["hosts"]]

    def host(self, wanted: str) -> HostRecord:
        """Get a host by name or id."""
        return HostRecord.model_validate(self._daemon.request("GET", f"/v1/hosts/{quote(wanted, safe='')}"))

    def change_host(self, wanted: str, change: HostChange) -> HostRecord:
        """Drain a host, activate it, or declare it lost."""
        return HostRecord.model_validate(self._daemon.request("POST", f"/v1/hosts/{quote(wanted, safe='')}/{change}"))

    def servers(self) -> list[ServerRecord]:
        """List the running MCP servers of all hosts."""
        return [ServerRecord.model_validate(each) for each in self._daemon.request("GET", "/v1/mcp-servers")["servers"]]


def _quotas(answer: Any) -> list[Quota]:
    return [Quota.model_validate(each) for each in answer["quotas"]]
