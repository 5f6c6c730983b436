"""Administration of a running daemon, over HTTP."""

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
    """Over HTTP, with the daemon's key."""

    def __init__(self, daemon: ApiClient) -> None:
        self._daemon = daemon

    def tenants(self) -> list[Tenant]:
        """All that the key may see."""
        found = self._daemon.request("GET", "/v1/tenants")["tenants"]
        return [Tenant.model_validate(each) for each in found]

    def create_tenant(self, name: str) -> Tenant:
        """A new one."""
        return Tenant.model_validate(self._daemon.request("POST", "/v1/tenants", json={"name": name}))

    def set_weight(self, tenant: TenantId, weight: int) -> Tenant:
        """Give it another share of each host."""
        return Tenant.model_validate(self._daemon.request("PATCH", f"/v1/tenants/{tenant}", json={"weight": weight}))

    def allow_yolo(self, tenant: TenantId, *, allowed: bool) -> Tenant:
        """Let its sessions have the mode `yolo`, or not."""
        return Tenant.model_validate(self._daemon.request("PATCH", f"/v1/tenants/{tenant}", json={"yolo": allowed}))

    def suspend(self, tenant: TenantId) -> Tenant:
        """Stop its keys and tokens."""
        return Tenant.model_validate(self._daemon.request("POST", f"/v1/tenants/{tenant}/suspend"))

    def resume(self, tenant: TenantId) -> Tenant:
        """Undo that."""
        return Tenant.model_validate(self._daemon.request("POST", f"/v1/tenants/{tenant}/resume"))

    def quotas(self, tenant: TenantId) -> list[Quota]:
        """Its limits, and what is used."""
        return _quotas(self._daemon.request("GET", "/v1/quotas", params={"tenant_id": tenant}))

    def set_limits(self, tenant: TenantId, changes: Mapping[Resource, int | None]) -> list[Quota]:
        """Limits of its own."""
        limits = {resource.value: amount for resource, amount in changes.items()}
        return _quotas(
            self._daemon.request("PATCH", "/v1/quotas", params={"tenant_id": tenant}, json={"limits": limits})
        )

    def principals(self, tenant: TenantId) -> list[PrincipalRecord]:
        """Its people and programs."""
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
        """A new one."""
        wish = {"name": name, "roles": [role.value for role in roles], "kind": kind.value, "reach": reach.value}
        made = self._daemon.request("POST", "/v1/principals", params={"tenant_id": tenant}, json=wish)
        return PrincipalRecord.model_validate(made)

    def groups(self, tenant: TenantId) -> list[Group]:
        """Its groups."""
        found = self._daemon.request("GET", "/v1/groups", params={"tenant_id": tenant})["groups"]
        return [Group.model_validate(each) for each in found]

    def update_groups(
        self, principal: PrincipalId, join: tuple[str, ...] = (), leave: tuple[str, ...] = ()
    ) -> list[str]:
        """Change a principal's groups."""
        change = {"join": list(join), "leave": list(leave)}
        answer = self._daemon.request("PATCH", f"/v1/principals/{principal}/groups", json=change)
        return [str(name) for name in answer["groups"]]

    def keys(self, tenant: TenantId) -> list[ApiKey]:
        """Its keys."""
        found = self._daemon.request("GET", "/v1/keys", params={"tenant_id": tenant})["keys"]
        return [ApiKey.model_validate(each) for each in found]

    def create_key(self, principal: PrincipalId, name: str, ttl_s: float | None) -> NewKey:
        """A new one."""
        wish = {"principal_id": principal, "name": name, "ttl_s": ttl_s}
        return NewKey.model_validate(self._daemon.request("POST", "/v1/keys", json=wish))

    def revoke_key(self, key: str) -> ApiKey:
        """End it."""
        return ApiKey.model_validate(self._daemon.request("DELETE", f"/v1/keys/{key}"))

    def hosts(self) -> list[HostRecord]:
        """All of them."""
        return [HostRecord.model_validate(each) for each in self._daemon.request("GET", "/v1/hosts")["hosts"]]

    def host(self, wanted: str) -> HostRecord:
        """The one of that name or id."""
        return HostRecord.model_validate(self._daemon.request("GET", f"/v1/hosts/{quote(wanted, safe='')}"))

    def change_host(self, wanted: str, change: HostChange) -> HostRecord:
        """Drain it, put it back, or give it up."""
        return HostRecord.model_validate(self._daemon.request("POST", f"/v1/hosts/{quote(wanted, safe='')}/{change}"))

    def servers(self) -> list[ServerRecord]:
        """The MCP servers of all hosts."""
        return [ServerRecord.model_validate(each) for each in self._daemon.request("GET", "/v1/mcp-servers")["servers"]]


def _quotas(answer: Any) -> list[Quota]:
    return [Quota.model_validate(each) for each in answer["quotas"]]
