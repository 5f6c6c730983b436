"""SQL for grants. A use is counted by one conditional write."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, bindparam, case, or_, select, update
from sqlalchemy import insert as insert_into

from codesdk.approvals.grants.grant import Grant, GrantState
from codesdk.domain.ids import ApprovalId, GrantId, PrincipalId, SessionId, TenantId
from codesdk.storage.database import database_now
from codesdk.storage.schema import grants

_HAS_USES_LEFT = or_(grants.c.max_uses.is_(None), grants.c.uses < grants.c.max_uses)
_ACTIVE = grants.c.ended_at.is_(None) & (grants.c.expires_at > database_now()) & _HAS_USES_LEFT
_STATE = case(
    (grants.c.ended_at.is_not(None), GrantState.ENDED.value),
    (grants.c.expires_at <= database_now(), GrantState.EXPIRED.value),
    (~_HAS_USES_LEFT, GrantState.USED_UP.value),
    else_=GrantState.ACTIVE.value,
).label("state_now")
_GRANTS = select(grants, _STATE)
# Built once: it runs for every call that a rule with an offer asks about.
_COVERING = _GRANTS.where(
    grants.c.tenant_id == bindparam("tenant"),
    grants.c.principal_id == bindparam("principal"),
    grants.c.tool == bindparam("tool"),
    or_(grants.c.session_id.is_(None), grants.c.session_id == bindparam("session")),
    or_(grants.c.input_hash.is_(None), grants.c.input_hash == bindparam("input_hash")),
    _ACTIVE,
).order_by(grants.c.created_at, grants.c.id)
_USE = update(grants).where(grants.c.id == bindparam("grant"), _ACTIVE).values(uses=grants.c.uses + 1)


def insert(connection: Connection, grant: GrantId, ttl_s: float, **row: Any) -> Grant:
    """Add a grant that expires in `ttl_s` seconds, on the database's clock."""
    values = {**row, "rules": json.dumps(row["rules"]), "schema_hash": row["behaviour_hash"]}
    del values["behaviour_hash"]
    now = database_now()
    connection.execute(insert_into(grants).values(id=grant, uses=0, created_at=now, expires_at=now + ttl_s, **values))
    return _grant(connection.execute(_GRANTS.where(grants.c.id == grant)).one())


def find(connection: Connection, tenant: str, grant: str) -> Grant | None:
    """The tenant's grant of that id."""
    row = connection.execute(_GRANTS.where(grants.c.id == grant, grants.c.tenant_id == tenant)).one_or_none()
    return _grant(row) if row else None


def listing(connection: Connection, tenant: str, session: str | None, *, active: bool) -> list[Grant]:
    """The tenant's grants, newest first, at most 200."""
    query = _GRANTS.where(grants.c.tenant_id == tenant)
    if session is not None:
        query = query.where(grants.c.session_id == session)
    if active:
        query = query.where(_ACTIVE)
    rows = connection.execute(query.order_by(grants.c.created_at.desc(), grants.c.id.desc()).limit(200))
    return [_grant(row) for row in rows]


def find_covering(connection: Connection, **sought: str) -> list[Grant]:
    """Active grants of `principal` in `tenant` for this `tool`, `session` and `input_hash`, oldest first."""
    return [_grant(row) for row in connection.execute(_COVERING, sought)]


def use(connection: Connection, grant: str) -> bool:
    """Count one use of an active grant. False: it is not active."""
    return connection.execute(_USE, {"grant": grant}).rowcount == 1


def release(connection: Connection, grant: str) -> None:
    """Return a use: the call did not run."""
    connection.execute(update(grants).where(grants.c.id == grant, grants.c.uses > 0).values(uses=grants.c.uses - 1))


def end(connection: Connection, grant: str, why: str, by: PrincipalId | None) -> bool:
    """End a grant. False: it had ended."""
    return _end(connection, grants.c.id == grant, why, by) == 1


def end_of_session(connection: Connection, session: str) -> None:
    """End the grants of one session."""
    _end(connection, grants.c.session_id == session, "The session was closed.", None)


def _end(connection: Connection, which: ColumnElement[bool], why: str, by: PrincipalId | None) -> int:
    change = update(grants).where(which, grants.c.ended_at.is_(None))
    return connection.execute(change.values(ended_at=database_now(), ended_by=by, ended_why=why)).rowcount


def _grant(row: Row[Any]) -> Grant:
    return Grant(
        id=GrantId(row.id),
        tenant_id=TenantId(row.tenant_id),
        principal_id=PrincipalId(row.principal_id),
        session_id=SessionId(row.session_id) if row.session_id else None,
        approval_id=ApprovalId(row.approval_id),
        tool=row.tool,
        rules=json.loads(row.rules),
        input_hash=row.input_hash,
        behaviour_hash=row.schema_hash,
        image=row.image,
        profile=row.profile,
        profile_hash=row.profile_hash,
        granted_by=PrincipalId(row.granted_by),
        reason=row.reason,
        state=GrantState(row.state_now),
        created_at=row.created_at,
        expires_at=row.expires_at,
        max_uses=row.max_uses,
        uses=row.uses,
        ended_at=row.ended_at,
        ended_by=PrincipalId(row.ended_by) if row.ended_by else None,
        ended_why=row.ended_why,
    )
