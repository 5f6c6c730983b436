"""SQL for logins."""

from __future__ import annotations

import json

from sqlalchemy import Connection, select, update
from sqlalchemy import insert as insert_into

from codesdk.domain.ids import PrincipalId, SessionId, TenantId
from codesdk.domain.model import FrozenModel
from codesdk.storage.schema import logins, principals, tenants
from codesdk.tenancy.principal import Principal, PrincipalKind, Reach, Role


class LoginRecord(FrozenModel):
    """A principal that has logged in before."""

    principal: Principal
    barred: bool
    """It is disabled, or its tenant suspended."""
    session_id: SessionId | None


def find(connection: Connection, issuer: str, subject: str, tenant: str) -> LoginRecord | None:
    """Return the issuer's subject in the tenant of that name, or None."""
    query = (
        select(principals, logins.c.session_id, tenants.c.suspended_at)
        .join(logins, logins.c.principal_id == principals.c.id)
        .join(tenants, tenants.c.id == principals.c.tenant_id)
        .where(logins.c.issuer == issuer, logins.c.subject == subject, tenants.c.name == tenant)
    )
    row = connection.execute(query).one_or_none()
    if row is None:
        return None
    principal = Principal(
        id=PrincipalId(row.id),
        tenant_id=TenantId(row.tenant_id),
        name=row.name,
        roles=tuple(Role(role) for role in json.loads(row.roles)),
        kind=PrincipalKind(row.kind),
        reach=Reach(row.reach),
    )
    barred = row.disabled_at is not None or row.suspended_at is not None
    return LoginRecord(
        principal=principal, barred=barred, session_id=SessionId(row.session_id) if row.session_id else None
    )


def insert(connection: Connection, issuer: str, subject: str, principal: Principal, now: float) -> None:
    """Record which principal the issuer's subject is."""
    row = {"issuer": issuer, "subject": subject, "tenant_id": principal.tenant_id, "principal_id": principal.id}
    connection.execute(insert_into(logins).values(**row, created_at=now))


def set_roles(connection: Connection, principal: PrincipalId, roles: tuple[Role, ...]) -> None:
    """Set the principal's roles."""
    written = json.dumps([role.value for role in roles])
    connection.execute(update(principals).where(principals.c.id == principal).values(roles=written))


def session_of(connection: Connection, principal: PrincipalId) -> SessionId | None:
    """Return the last session opened for it."""
    found = connection.execute(select(logins.c.session_id).where(logins.c.principal_id == principal)).scalar()
    return SessionId(found) if found else None


def keep_session(connection: Connection, principal: PrincipalId, session: SessionId) -> None:
    """Record the session as the principal's last one."""
    connection.execute(update(logins).where(logins.c.principal_id == principal).values(session_id=session))
