"""The statements of tenancy."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Connection, Row, bindparam, select, update
from sqlalchemy import insert as insert_into

from codesdk.domain.decisions import PermissionMode
from codesdk.domain.ids import PrincipalId, SessionId, TenantId
from codesdk.domain.subjects import Subject
from codesdk.storage.database import database_now
from codesdk.storage.schema import api_keys, principals, session_tokens, sessions, tenants
from codesdk.tenancy.principal import Principal, Role

# Asked on every request, so built once.
_SUBJECT = (
    select(sessions, sessions.c.id.label("session_id"), principals.c.roles)
    .join(session_tokens, session_tokens.c.session_id == sessions.c.id)
    .join(principals, principals.c.id == sessions.c.principal_id)
    .where(
        session_tokens.c.hash == bindparam("hash"),
        session_tokens.c.revoked_at.is_(None),
        session_tokens.c.expires_at > database_now(),
        sessions.c.state == "open",
    )
)


def tenant_named(connection: Connection, name: str) -> TenantId | None:
    """The tenant's id, where there is one of that name."""
    found = connection.execute(select(tenants.c.id).where(tenants.c.name == name)).scalar()
    return TenantId(found) if found else None


def insert_tenant(connection: Connection, tenant: TenantId, name: str, now: float) -> None:
    """Add a tenant."""
    connection.execute(insert_into(tenants), {"id": tenant, "name": name, "created_at": now})


def insert_principal(connection: Connection, principal: Principal, now: float) -> None:
    """Add a principal."""
    row = {
        "id": principal.id,
        "tenant_id": principal.tenant_id,
        "name": principal.name,
        "roles": json.dumps([role.value for role in principal.roles]),
        "created_at": now,
    }
    connection.execute(insert_into(principals), row)


def insert_key(connection: Connection, key: str, principal: PrincipalId, key_hash: str, now: float) -> None:
    """Add an API key by its hash."""
    row = {"id": key, "principal_id": principal, "hash": key_hash, "created_at": now}
    connection.execute(insert_into(api_keys), row)


def principal_of_key(connection: Connection, key_hash: str) -> Principal | None:
    """Who holds this key, unless it is revoked."""
    row = connection.execute(
        select(principals)
        .join(api_keys, api_keys.c.principal_id == principals.c.id)
        .where(api_keys.c.hash == key_hash, api_keys.c.revoked_at.is_(None))
    ).one_or_none()
    return _principal(row) if row else None


def insert_token(connection: Connection, token_hash: str, session: SessionId, ttl_s: float) -> None:
    """Add a session token by its hash; it expires `ttl_s` from now on the clock that judges it, the database's."""
    expires_at = database_now() + ttl_s
    connection.execute(insert_into(session_tokens).values(hash=token_hash, session_id=session, expires_at=expires_at))


def revoke_tokens(connection: Connection, session: SessionId, now: float) -> None:
    """End every token of the session."""
    connection.execute(
        update(session_tokens)
        .where(session_tokens.c.session_id == session, session_tokens.c.revoked_at.is_(None))
        .values(revoked_at=now)
    )


def subject_of_token(connection: Connection, token_hash: str) -> Subject | None:
    """Whose session this token opens, unless it is revoked, expired (by the database's clock) or the session closed."""
    row = connection.execute(_SUBJECT, {"hash": token_hash}).one_or_none()
    return subject_from(row) if row else None


def subject_from(row: Row[Any]) -> Subject:
    """The subject in a row that has `session_id`, the session's columns and its principal's roles."""
    return Subject(
        tenant_id=TenantId(row.tenant_id),
        principal_id=PrincipalId(row.principal_id),
        session_id=SessionId(row.session_id),
        permission_mode=PermissionMode(row.permission_mode),
        runtime=row.runtime,
        roles=tuple(json.loads(row.roles)),
        labels=json.loads(row.labels),
    )


def _principal(row: Row[Any]) -> Principal:
    return Principal(
        id=PrincipalId(row.id),
        tenant_id=TenantId(row.tenant_id),
        name=row.name,
        roles=tuple(Role(role) for role in json.loads(row.roles)),
    )
