"""Principals and their API keys over HTTP."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from codesdk.api.access import Caller, ServicesDep, guarded_router
from codesdk.api.routes.tenants import TenantParam
from codesdk.domain.decisions import GroupName
from codesdk.domain.model import FrozenModel
from codesdk.tenancy.keys import ApiKey, NewKey
from codesdk.tenancy.principal import Group, Name, PrincipalKind, PrincipalRecord, Reach, Role

router = guarded_router()

MAX_KEY_TTL_S = 10 * 366 * 24 * 3600.0
"""Seconds that a key may be made to live, where it is not made to live for ever."""
Ttl = Annotated[float, Field(gt=0, le=MAX_KEY_TTL_S)]


class NewPrincipal(FrozenModel):
    """A person or a program to make."""

    name: Name
    roles: tuple[Role, ...] = Field(min_length=1, max_length=len(Role))
    kind: PrincipalKind = PrincipalKind.PERSON
    reach: Reach = Reach.TENANT
    """`instance`: only an operator of that reach may make another."""


class PrincipalList(FrozenModel):
    """Principals, oldest first."""

    principals: list[PrincipalRecord]


class GroupList(FrozenModel):
    """Groups, by name."""

    groups: list[Group]


class GroupChange(FrozenModel):
    """What to change of a principal's groups."""

    join: tuple[GroupName, ...] = Field(default=(), max_length=100)
    leave: tuple[GroupName, ...] = Field(default=(), max_length=100)


class GroupsOfPrincipal(FrozenModel):
    """The groups that a principal is in."""

    principal_id: str
    groups: list[str]


class NewApiKey(FrozenModel):
    """A key to make."""

    principal_id: str = Field(max_length=40)
    name: Name
    """What it is for: for whoever looks at the list."""
    ttl_s: Ttl | None = None
    """Seconds that it lives; null for ever."""


class KeyList(FrozenModel):
    """Keys, oldest first, with those that are over."""

    keys: list[ApiKey]


@router.get("/v1/principals")
def list_principals(caller: Caller, services: ServicesDep, tenant_id: TenantParam = None) -> PrincipalList:
    """The tenant's people and programs."""
    found = services.administration.principals(caller, tenant_id or caller.tenant_id)
    return PrincipalList(principals=found)


@router.post("/v1/principals", status_code=201)
def create_principal(
    wish: NewPrincipal, caller: Caller, services: ServicesDep, tenant_id: TenantParam = None
) -> PrincipalRecord:
    """A new one, without a key."""
    return services.administration.create_principal(
        caller, tenant_id or caller.tenant_id, wish.name, wish.roles, kind=wish.kind, reach=wish.reach
    )


@router.get("/v1/principals/{principal_id}")
def read_principal(principal_id: str, caller: Caller, services: ServicesDep) -> PrincipalRecord:
    """One of them."""
    return services.administration.principal(caller, principal_id)


@router.post("/v1/principals/{principal_id}/disable")
def disable_principal(principal_id: str, caller: Caller, services: ServicesDep) -> PrincipalRecord:
    """For good: its keys and its sessions' tokens open nothing any more, and none of its calls starts."""
    return services.administration.disable(caller, principal_id)


@router.get("/v1/groups")
def list_groups(caller: Caller, services: ServicesDep, tenant_id: TenantParam = None) -> GroupList:
    """The tenant's groups, which policy's `approval: {group: …}` names, with their members."""
    return GroupList(groups=services.administration.groups(caller, tenant_id or caller.tenant_id))


@router.patch("/v1/principals/{principal_id}/groups")
def change_groups(principal_id: str, change: GroupChange, caller: Caller, services: ServicesDep) -> GroupsOfPrincipal:
    """Let a principal join and leave groups."""
    groups = services.administration.update_groups(caller, principal_id, join=change.join, leave=change.leave)
    return GroupsOfPrincipal(principal_id=principal_id, groups=groups)


@router.get("/v1/keys")
def list_keys(caller: Caller, services: ServicesDep, tenant_id: TenantParam = None) -> KeyList:
    """The tenant's keys, as far as they may be shown."""
    return KeyList(keys=services.administration.keys(caller, tenant_id or caller.tenant_id))


@router.post("/v1/keys", status_code=201)
def create_key(wish: NewApiKey, caller: Caller, services: ServicesDep) -> NewKey:
    """A new key; its `secret` is shown this once."""
    return services.administration.create_key(caller, wish.principal_id, wish.name, wish.ttl_s)


@router.delete("/v1/keys/{key_id}")
def revoke_key(key_id: str, caller: Caller, services: ServicesDep) -> ApiKey:
    """End it, at once."""
    return services.administration.revoke_key(caller, key_id)
