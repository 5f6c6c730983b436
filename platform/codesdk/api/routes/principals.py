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
"""Maximum lifetime of a key in seconds, unless it is unlimited."""
Ttl = Annotated[float, Field(gt=0, le=MAX_KEY_TTL_S)]


class NewPrincipal(FrozenModel):
    """A principal to create."""

    name: Name
    roles: tuple[Role, ...] = Field(min_length=1, max_length=len(Role))
    kind: PrincipalKind = PrincipalKind.PERSON
    reach: Reach = Reach.TENANT
    """`instance`: only an operator with that reach may create one."""


class PrincipalList(FrozenModel):
    """Principals, oldest first."""

    principals: list[PrincipalRecord]


class GroupList(FrozenModel):
    """Groups, by name."""

    groups: list[Group]


class GroupChange(FrozenModel):
    """Changes to a principal's groups."""

    join: tuple[GroupName, ...] = Field(default=(), max_length=100)
    leave: tuple[GroupName, ...] = Field(default=(), max_length=100)


class GroupsOfPrincipal(FrozenModel):
    """A principal's groups."""

    principal_id: str
    groups: list[str]


class NewApiKey(FrozenModel):
    """An API key to create."""

    principal_id: str = Field(max_length=40)
    name: Name
    """What the key is for, to recognise it in lists."""
    ttl_s: Ttl | None = None
    """Lifetime in seconds; null: unlimited."""


class KeyList(FrozenModel):
    """Keys, oldest first, including expired and revoked ones."""

    keys: list[ApiKey]


@router.get("/v1/principals")
def list_principals(caller: Caller, services: ServicesDep, tenant_id: TenantParam = None) -> PrincipalList:
    """List the tenant's principals."""
    found = services.administration.principals(caller, tenant_id or caller.tenant_id)
    return PrincipalList(principals=found)


@router.post("/v1/principals", status_code=201)
def create_principal(
    wish: NewPrincipal, caller: Caller, services: ServicesDep, tenant_id: TenantParam = None
) -> PrincipalRecord:
    """Create a principal, without a key."""
    return services.administration.create_principal(
        caller, tenant_id or caller.tenant_id, wish.name, wish.roles, kind=wish.kind, reach=wish.reach
    )


@router.get("/v1/principals/{principal_id}")
def read_principal(principal_id: str, caller: Caller, services: ServicesDep) -> PrincipalRecord:
    """Return a principal."""
    return services.administration.principal(caller, principal_id)


@router.post("/v1/principals/{principal_id}/disable")
def disable_principal(principal_id: str, caller: Caller, services: ServicesDep) -> PrincipalRecord:
    """Disable a principal permanently: its keys and session tokens stop working, and none of its calls starts."""
    return services.administration.disable(caller, principal_id)


@router.get("/v1/groups")
def list_groups(caller: Caller, services: ServicesDep, tenant_id: TenantParam = None) -> GroupList:
    """List the tenant's groups, which policy's `approval: {group: …}` refers to, with their members."""
    return GroupList(groups=services.administration.groups(caller, tenant_id or caller.tenant_id))


@router.patch("/v1/principals/{principal_id}/groups")
def change_groups(principal_id: str, change: GroupChange, caller: Caller, services: ServicesDep) -> GroupsOfPrincipal:
    """Add a principal to groups, and remove it from others."""
    groups = services.administration.update_groups(caller, principal_id, join=change.join, leave=change.leave)
    return GroupsOfPrincipal(principal_id=principal_id, groups=groups)


@router.get("/v1/keys")
def list_keys(caller: Caller, services: ServicesDep, tenant_id: TenantParam = None) -> KeyList:
    """List the tenant's keys, without their secrets."""
    return KeyList(keys=services.administration.keys(caller, tenant_id or caller.tenant_id))


@router.post("/v1/keys", status_code=201)
def create_key(wish: NewApiKey, caller: Caller, services: ServicesDep) -> NewKey:
    """Create a key. Its `secret` can't be read again."""
    return services.administration.create_key(caller, wish.principal_id, wish.name, wish.ttl_s)


@router.delete("/v1/keys/{key_id}")
def revoke_key(key_id: str, caller: Caller, services: ServicesDep) -> ApiKey:
    """Revoke a key, effective at once."""
    return services.administration.revoke_key(caller, key_id)
