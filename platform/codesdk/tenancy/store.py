"""SQL for tenants, principals, keys and session tokens."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, bindparam, delete, select, update
from sqlalchemy import insert as insert_into

from codesdk.domain.decisions import PermissionMode
from codesdk.domain.ids import KeyId, PrincipalId, SessionId, TenantId
from codesdk.domain.subjects import Subject
from codesdk.storage.database import database_now
from codesdk.storage.schema import api_keys, group_members, principals, session_tokens, sessions, tenants
from codesdk.tenancy.keys import ApiKey
from codesdk.tenancy.principal import Principal, PrincipalKind, PrincipalRecord, Reach, Role
from codesdk.tenancy.tenant import Tenant

# Used for every request, so built once.
_VALID_KEY = api_keys.c.revoked_at.is_(None) & (
    api_keys.c.expires_at.is_(None) | (api_keys.c.expires_at > database_now())
)
_VALID_PRINCIPAL = principals.c.disabled_at.is_(None) & tenants.c.suspended_at.is_(None)
_PRINCIPAL = (
    select(principals, api_keys.c.id.label("key_id"), api_keys.c.last_used_at)
    .join(api_keys, api_keys.c.principal_id == principals.c.id)
    .join(tenants, tenants.c.id == principals.c.tenant_id)
    .where(api_keys.c.hash == bindparam("hash"), _VALID_KEY, _VALID_PRINCIPAL)
)
_ACTIVE = (
    select(principals.c.id)
    .join(tenants, tenants.c.id == principals.c.tenant_id)
    .where(principals.c.id == bindparam("principal"), _VALID_PRINCIPAL)
)
_ACTIVE_WITH_KEY = _ACTIVE.join(api_keys, api_keys.c.principal_id == principals.c.id).where(
    api_keys.c.id == bindparam("key"), _VALID_KEY
)
_SUBJECT = (
    select(sessions, sessions.c.id.label("session_id"), principals.c.roles, tenants.c.yolo)
    .join(session_tokens, session_tokens.c.session_id == sessions.c.id)
    .join(principals, principals.c.id == sessions.c.principal_id)
    .join(tenants, tenants.c.id == sessions.c.tenant_id)
    .where(
        session_tokens.c.hash == bindparam("hash"),
        session_tokens.c.revoked_at.is_(None),
        session_tokens.c.expires_at > database_now(),
        sessions.c.state == "open",
        _VALID_PRINCIPAL,
    )
)
_SUBJECT_IN = (
    select(sessions, sessions.c.id.label("session_id"), principals.c.roles, tenants.c.yolo)
    .join(principals, principals.c.id == sessions.c.principal_id)
    .join(tenants, tenants.c.id == sessions.c.tenant_id)
    .where(
        sessions.c.id == bindparam("session"),
        sessions.c.principal_id == bindparam("principal"),
        sessions.c.state == "open",
        _VALID_PRINCIPAL,
    )
)
_KEYS = select(api_keys, principals.c.tenant_id).join(principals, principals.c.id == api_keys.c.principal_id)

# -- who calls --------------------------------------------------------------------------------------------------------


def principal_of_key(connection: Connection, key_hash: str) -> tuple[Principal, float | None] | None:
    """Return the key's holder and when it was last used. None if key, principal or tenant is not active."""
    row = connection.execute(_PRINCIPAL, {"hash": key_hash}).one_or_none()
    return (_principal(row), row.last_used_at) if row else None


def active_principal(connection: Connection, principal: PrincipalId) -> Principal | None:
    """Return the principal, unless it is disabled or its tenant suspended."""
    query = select(principals).join(tenants, tenants.c.id == principals.c.tenant_id)
    row = connection.execute(query.where(principals.c.id == principal, _VALID_PRINCIPAL)).one_or_none()
    return _principal(row) if row else None


def is_active(connection: Connection, principal: Principal) -> bool:
    """Return whether an authenticated principal would be accepted now, with the same key."""
    sought = {"principal": principal.id}
    if principal.key_id is None:
        return connection.execute(_ACTIVE, sought).first() is not None
    return connection.execute(_ACTIVE_WITH_KEY, {**sought, "key": principal.key_id}).first() is not None


def record_use(connection: Connection, key: KeyId, hour: float) -> None:
    """Record that the key was used in that hour."""
    connection.execute(update(api_keys).where(api_keys.c.id == key).values(last_used_at=hour))


def insert_token(connection: Connection, token_hash: str, session: SessionId, ttl_s: float) -> None:
    """Insert a session token by its hash. It expires in `ttl_s` seconds, on the database's clock."""
    expires_at = database_now() + ttl_s
    connection.execute(insert_into(session_tokens).values(hash=token_hash, session_id=session, expires_at=expires_at))


def revoke_tokens(connection: Connection, session: SessionId, now: float) -> None:
    """Revoke every token of the session."""
    connection.execute(
        update(session_tokens)
        .where(session_tokens.c.session_id == session, session_tokens.c.revoked_at.is_(None))
        .values(revoked_at=now)
    )


def subject_of_token(connection: Connection, token_hash: str) -> Subject | None:
    """Return the token's subject. None if token, session, principal or tenant is not active."""
    row = connection.execute(_SUBJECT, {"hash": token_hash}).one_or_none()
    return subject_from(row) if row else None


def subject_in(connection: Connection, session: str, principal: PrincipalId) -> Subject | None:
    """Return the principal's subject in its own session. None if session, principal or tenant is not active."""
    row = connection.execute(_SUBJECT_IN, {"session": session, "principal": principal}).one_or_none()
    return subject_from(row) if row else None


def subject_from(row: Row[Any]) -> Subject:
    """Build the subject from a row with `session_id`, the session's columns, the principal's roles and `tenants.yolo`.

    A `yolo` session counts as `auto` while its tenant may not use that mode.
    """
    mode = PermissionMode(row.permission_mode)
    return Subject(
        tenant_id=TenantId(row.tenant_id),
        principal_id=PrincipalId(row.principal_id),
        session_id=SessionId(row.session_id),
        permission_mode=PermissionMode.AUTO if mode is PermissionMode.YOLO and not row.yolo else mode,
        runtime=row.runtime,
        roles=tuple(json.loads(row.roles)),
        labels=json.loads(row.labels),
        policy_hash=row.policy_hash,
    )


# -- tenants ----------------------------------------------------------------------------------------------------------


def tenant_named(connection: Connection, name: str) -> TenantId | None:
    """Return the id of the tenant of that name, or None."""
    found = connection.execute(select(tenants.c.id).where(tenants.c.name == name)).scalar()
    return TenantId(found) if found else None


def tenant(connection: Connection, id_: str) -> Tenant | None:
    """Return the tenant, or None."""
    row = connection.execute(select(tenants).where(tenants.c.id == id_)).one_or_none()
    return _tenant(row) if row else None


def all_tenants(connection: Connection) -> list[Tenant]:
    """List all tenants, oldest first."""
    return [_tenant(row) for row in connection.execute(select(tenants).order_by(tenants.c.created_at, tenants.c.id))]


def insert_tenant(connection: Connection, made: Tenant) -> None:
    """Insert a tenant."""
    row = made.model_dump(include={"id", "name", "created_at", "yolo"})
    connection.execute(insert_into(tenants), row)


def set_weight(connection: Connection, tenant: TenantId, weight: int) -> None:
    """Set the tenant's share of each host's calls."""
    connection.execute(update(tenants).where(tenants.c.id == tenant).values(weight=weight))


def set_yolo(connection: Connection, tenant: TenantId, *, allowed: bool) -> None:
    """Set whether its sessions may use the `yolo` mode."""
    connection.execute(update(tenants).where(tenants.c.id == tenant).values(yolo=allowed))


def allows_yolo(connection: Connection, tenant: TenantId) -> bool:
    """Return whether its sessions may use the `yolo` mode."""
    return bool(connection.execute(select(tenants.c.yolo).where(tenants.c.id == tenant)).scalar())


def set_suspended(connection: Connection, tenant: TenantId, since: float | None) -> None:
    """Suspend the tenant, or resume it with None. Suspending twice keeps the first date."""
    change = update(tenants).where(tenants.c.id == tenant)
    if since is not None:
        change = change.where(tenants.c.suspended_at.is_(None))
    connection.execute(change.values(suspended_at=since))


# -- principals -------------------------------------------------------------------------------------------------------


def insert_principal(connection: Connection, principal: Principal, now: float) -> None:
    """Insert a principal."""
    row = {
        "id": principal.id,
        "tenant_id": principal.tenant_id,
        "name": principal.name,
        "roles": json.dumps([role.value for role in principal.roles]),
        "kind": principal.kind.value,
        "reach": principal.reach.value,
        "created_at": now,
    }
    connection.execute(insert_into(principals), row)


def principal(connection: Connection, id_: str) -> PrincipalRecord | None:
    """Return the principal, of any tenant, or None."""
    row = connection.execute(select(principals).where(principals.c.id == id_)).one_or_none()
    return _record(row) if row else None


def principals_of(connection: Connection, tenant: TenantId) -> list[PrincipalRecord]:
    """List the tenant's principals, oldest first."""
    query = select(principals).where(principals.c.tenant_id == tenant)
    return [_record(row) for row in connection.execute(query.order_by(principals.c.created_at, principals.c.id))]


def principal_named(connection: Connection, tenant: TenantId, name: str) -> PrincipalRecord | None:
    """Return the tenant's newest principal of that name that isn't disabled."""
    query = select(principals).where(
        principals.c.tenant_id == tenant, principals.c.name == name, principals.c.disabled_at.is_(None)
    )
    row = connection.execute(query.order_by(principals.c.created_at.desc(), principals.c.id.desc()).limit(1)).first()
    return _record(row) if row else None


def disable(connection: Connection, principal: PrincipalId, now: float) -> None:
    """Disable the principal. Repeating it keeps the first date."""
    connection.execute(
        update(principals)
        .where(principals.c.id == principal, principals.c.disabled_at.is_(None))
        .values(disabled_at=now)
    )


# -- groups -----------------------------------------------------------------------------------------------------------


def join_group(connection: Connection, principal: PrincipalRecord, group: str) -> None:
    """Add the principal to the group. Does nothing if it is a member."""
    found = select(group_members.c.name).where(_membership(principal, group))
    if connection.execute(found).first() is None:
        row = {"tenant_id": principal.tenant_id, "name": group, "principal_id": principal.id}
        connection.execute(insert_into(group_members).values(**row, added_at=database_now()))


def leave_group(connection: Connection, principal: PrincipalRecord, group: str) -> bool:
    """Remove the principal from the group. Returns False if it wasn't a member."""
    return connection.execute(delete(group_members).where(_membership(principal, group))).rowcount == 1


def groups_of(connection: Connection, tenant: TenantId) -> dict[str, list[PrincipalId]]:
    """Return the tenant's groups with their members, oldest first. Includes disabled principals."""
    query = select(group_members).where(group_members.c.tenant_id == tenant)
    found: dict[str, list[PrincipalId]] = {}
    for row in connection.execute(query.order_by(group_members.c.name, group_members.c.added_at)):
        found.setdefault(row.name, []).append(PrincipalId(row.principal_id))
    return found


def known_groups(connection: Connection, tenant: TenantId | None) -> frozenset[str]:
    """Return the names of the tenant's groups, or with None of every tenant's."""
    query = select(group_members.c.name).distinct()
    found = query if tenant is None else query.where(group_members.c.tenant_id == tenant)
    return frozenset(connection.execute(found).scalars())


def _membership(principal: PrincipalRecord, group: str) -> ColumnElement[bool]:
    ours = and_(group_members.c.tenant_id == principal.tenant_id, group_members.c.principal_id == principal.id)
    return and_(ours, group_members.c.name == group)


# -- keys -------------------------------------------------------------------------------------------------------------


def insert_key(connection: Connection, key: ApiKey, key_hash: str, ttl_s: float | None) -> None:
    """Insert an API key by its hash. `ttl_s`: lifetime in seconds, on the database's clock; None: unlimited."""
    row = key.model_dump(exclude={"tenant_id", "expires_at"})
    expires_at = None if ttl_s is None else database_now() + ttl_s
    connection.execute(insert_into(api_keys).values(**row, hash=key_hash, expires_at=expires_at))


def key(connection: Connection, id_: str) -> ApiKey | None:
    """Return the key, of any tenant, or None."""
    row = connection.execute(_KEYS.where(api_keys.c.id == id_)).one_or_none()
    return _key(row) if row else None


def keys_of(connection: Connection, tenant: TenantId) -> list[ApiKey]:
    """List the tenant's keys, oldest first, including expired and revoked ones."""
    query = _KEYS.where(principals.c.tenant_id == tenant).order_by(api_keys.c.created_at, api_keys.c.id)
    return [_key(row) for row in connection.execute(query)]


def revoke_key(connection: Connection, key: KeyId, now: float) -> None:
    """Revoke the key. Repeating it keeps the first date."""
    connection.execute(
        update(api_keys).where(api_keys.c.id == key, api_keys.c.revoked_at.is_(None)).values(revoked_at=now)
    )


def _tenant(row: Row[Any]) -> Tenant:
    return Tenant.model_validate({name: getattr(row, name) for name in Tenant.model_fields})


def _principal(row: Row[Any]) -> Principal:
    return Principal(
        id=PrincipalId(row.id),
        tenant_id=TenantId(row.tenant_id),
        name=row.name,
        roles=_roles(row),
        kind=PrincipalKind(row.kind),
        reach=Reach(row.reach),
        key_id=KeyId(row.key_id) if "key_id" in row._fields else None,
    )


def _record(row: Row[Any]) -> PrincipalRecord:
    fields = {name: value for name, value in row._asdict().items() if name in PrincipalRecord.model_fields}
    return PrincipalRecord.model_validate({**fields, "roles": _roles(row)})


def _key(row: Row[Any]) -> ApiKey:
    return ApiKey.model_validate({name: value for name, value in row._asdict().items() if name in ApiKey.model_fields})


def _roles(row: Row[Any]) -> tuple[Role, ...]:
    return tuple(Role(role) for role in json.loads(row.roles))
