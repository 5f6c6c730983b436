"""Administration from the command line: over HTTP where a daemon runs, else on the data directory itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, Protocol
from urllib.parse import quote

from codesdk.bootstrap.administration import open_tenancy
from codesdk.cli.daemon import Daemon, NotRunning, connect
from codesdk.domain.ids import PrincipalId, TenantId
from codesdk.domain.quotas import Resource
from codesdk.hosts import HostRecord, Hosts
from codesdk.settings import Settings, runfile
from codesdk.sources.roster import Roster
from codesdk.sources.server_status import ServerRecord
from codesdk.tenancy.administration import Administration
from codesdk.tenancy.keys import ApiKey, NewKey
from codesdk.tenancy.principal import Group, Principal, PrincipalKind, PrincipalRecord, Reach, Role
from codesdk.tenancy.quotas import Quota
from codesdk.tenancy.tenant import Tenant, TenantUnknown

HOLDER = Principal(
    id=PrincipalId("data-directory"),
    tenant_id=TenantId(""),
    name="data-directory",
    roles=tuple(Role),
    reach=Reach.INSTANCE,
)
"""Whoever can write the data directory can do all of this anyway; its name is what the log says of who did it."""


HostChange = Literal["drain", "activate", "lose"]


class Office(Protocol):
    """What the commands need. Both implementations pass tests/integration/api/test_office.py."""

    def tenants(self) -> list[Tenant]:
        """All of them."""
        ...

    def create_tenant(self, name: str) -> Tenant:
        """A new one."""
        ...

    def weigh(self, tenant: TenantId, weight: int) -> Tenant:
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
        self, tenant: TenantId, name: str, roles: tuple[Role, ...], kind: PrincipalKind
    ) -> PrincipalRecord:
        """A new one."""
        ...

    def groups(self, tenant: TenantId) -> list[Group]:
        """Its groups."""
        ...

    def regroup(self, principal: PrincipalId, join: tuple[str, ...] = (), leave: tuple[str, ...] = ()) -> list[str]:
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
        self, tenant: TenantId, name: str, roles: tuple[Role, ...], kind: PrincipalKind
    ) -> PrincipalRecord:
        """A new one."""
        return self._office.create_principal(HOLDER, tenant, name, roles, kind=kind)

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


class RemoteOffice:
    """Over HTTP, with the daemon's key."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon

    def tenants(self) -> list[Tenant]:
        """All that the key may see."""
        found = self._daemon.request("GET", "/v1/tenants")["tenants"]
        return [Tenant.model_validate(each) for each in found]

    def create_tenant(self, name: str) -> Tenant:
        """A new one."""
        return Tenant.model_validate(self._daemon.request("POST", "/v1/tenants", json={"name": name}))

    def weigh(self, tenant: TenantId, weight: int) -> Tenant:
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
        self, tenant: TenantId, name: str, roles: tuple[Role, ...], kind: PrincipalKind
    ) -> PrincipalRecord:
        """A new one."""
        wish = {"name": name, "roles": [role.value for role in roles], "kind": kind.value}
        made = self._daemon.request("POST", "/v1/principals", params={"tenant_id": tenant}, json=wish)
        return PrincipalRecord.model_validate(made)

    def groups(self, tenant: TenantId) -> list[Group]:
        """Its groups."""
        found = self._daemon.request("GET", "/v1/groups", params={"tenant_id": tenant})["groups"]
        return [Group.model_validate(each) for each in found]

    def regroup(self, principal: PrincipalId, join: tuple[str, ...] = (), leave: tuple[str, ...] = ()) -> list[str]:
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


@contextmanager
def open_office(settings: Settings) -> Iterator[Office]:
    """The daemon's, where one runs on this data directory; else the directory's own.

    Raises:
        NotRunning: there is neither a daemon nor a database.
        NoOperatorKey: a daemon runs, and its key cannot be read.
    """
    if runfile.read(settings.data_dir, "api") is not None:
        with connect(settings) as daemon:
            yield RemoteOffice(daemon)
        return
    if not settings.database_url and not (settings.data_dir / "codesdk.db").exists():
        raise NotRunning(
            f"There is no installation in {settings.data_dir}.",
            advice="Make one with `codesdk init` or `codesdk up`, or name another --data-dir.",
        )
    with open_tenancy(settings) as (tenancy, _):
        yield DirectOffice(tenancy.administration, tenancy.hosts, tenancy.servers)


def tenant_of(office: Office, wanted: str) -> Tenant:
    """The tenant of that name or id.

    Raises:
        TenantUnknown: none.
    """
    found = next((each for each in office.tenants() if wanted in (each.id, each.name)), None)
    if found is None:
        raise TenantUnknown(f"There is no tenant {wanted}.", advice="`codesdk tenants list` shows them.")
    return found


def _quotas(answer: Any) -> list[Quota]:
    return [Quota.model_validate(each) for each in answer["quotas"]]
