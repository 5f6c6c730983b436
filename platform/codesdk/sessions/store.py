"""SQL for sessions."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Connection, Row, select, update
from sqlalchemy import insert as insert_into

from codesdk.domain.decisions import PermissionMode
from codesdk.domain.ids import ArtifactId, HostId, PrincipalId, SandboxId, SessionId, TenantId
from codesdk.domain.records import Session, SessionPriority
from codesdk.hosts.host import HostState
from codesdk.sandbox.records.store import SandboxState
from codesdk.storage.schema import hosts, removed_sessions, sandboxes, sessions


def insert(connection: Connection, session: Session, *, profile: dict[str, Any], seed: str | None, epoch: str) -> None:
    """Insert an open session."""
    row = session.model_dump(exclude={"labels", "closed_at", "closed_reason", "snapshot_artifact", "snapshot_at"})
    row |= {
        "permission_mode": session.permission_mode.value,
        "priority": session.priority.value,
        "labels": json.dumps(session.labels),
        "profile": json.dumps(profile),
        "seed_artifact": seed,
        "log_epoch": epoch,
    }
    connection.execute(insert_into(sessions), row)


def find(connection: Connection, tenant: str, session: str) -> Session | None:
    """Return the tenant's session, or None."""
    query = select(sessions).where(sessions.c.id == session, sessions.c.tenant_id == tenant)
    row = connection.execute(query).one_or_none()
    return _session(row) if row else None


def profile(connection: Connection, session: str) -> str:
    """Return the JSON of the profile that the session was opened with."""
    return str(connection.execute(select(sessions.c.profile).where(sessions.c.id == session)).scalar_one())


def imported_at(connection: Connection, session: str) -> float | None:
    """Return when the session was imported from an export, for any tenant. None if it was opened here."""
    return connection.execute(select(sessions.c.imported_at).where(sessions.c.id == session)).scalar()


def removed_at(connection: Connection, tenant: str, session: str) -> float | None:
    """Return when retention removed the tenant's session. None if it didn't."""
    query = select(removed_sessions.c.removed_at).where(
        removed_sessions.c.id == session, removed_sessions.c.tenant_id == tenant
    )
    return connection.execute(query).scalar()


def listing(connection: Connection, tenant: str, limit: int) -> list[Session]:
    """List the tenant's sessions, newest first."""
    query = select(sessions).where(sessions.c.tenant_id == tenant).order_by(sessions.c.created_at.desc()).limit(limit)
    return [_session(row) for row in connection.execute(query)]


def list_all_open(connection: Connection) -> list[Session]:
    """List the open sessions of all tenants, oldest first."""
    query = select(sessions).where(sessions.c.state == "open").order_by(sessions.c.created_at)
    return [_session(row) for row in connection.execute(query)]


def open_on_lost_hosts(connection: Connection) -> list[Session]:
    """List open sessions on lost hosts, oldest first."""
    query = select(sessions).join(hosts, hosts.c.id == sessions.c.host_id)
    query = query.where(hosts.c.state == HostState.LOST.value, sessions.c.state == "open").order_by(
        sessions.c.created_at
    )
    return [_session(row) for row in connection.execute(query)]


def orphaned_sandboxes(connection: Connection) -> list[tuple[SandboxId, HostId]]:
    """List sandboxes on lost hosts that aren't gone and have no open session."""
    query = (
        select(sandboxes.c.id, sandboxes.c.host_id)
        .join(hosts, hosts.c.id == sandboxes.c.host_id)
        .outerjoin(sessions, sessions.c.id == sandboxes.c.session_id)
        .where(hosts.c.state == HostState.LOST.value, sandboxes.c.state != SandboxState.GONE.value)
        .where(sessions.c.id.is_(None) | (sessions.c.state != "open"))
    )
    return [(SandboxId(row.id), HostId(row.host_id)) for row in connection.execute(query)]


def close(connection: Connection, session: SessionId, now: float, reason: str) -> bool:
    """Close the session. Returns False if it was closed already."""
    changed = connection.execute(
        update(sessions)
        .where(sessions.c.id == session, sessions.c.state == "open")
        .values(state="closed", closed_at=now, closed_reason=reason)
    )
    return changed.rowcount == 1


def _session(row: Row[Any]) -> Session:
    return Session(
        id=SessionId(row.id),
        tenant_id=TenantId(row.tenant_id),
        principal_id=PrincipalId(row.principal_id),
        host_id=HostId(row.host_id),
        state=row.state,
        runtime=row.runtime,
        permission_mode=PermissionMode(row.permission_mode),
        labels=json.loads(row.labels),
        image=row.image,
        priority=SessionPriority(row.priority),
        parallel_calls=row.parallel_calls,
        watch=row.watch,
        last_seq=row.last_seq,
        created_at=row.created_at,
        closed_at=row.closed_at,
        closed_reason=row.closed_reason,
        snapshots=row.snapshots,
        snapshot_artifact=ArtifactId(row.snapshot_artifact) if row.snapshot_artifact else None,
        snapshot_at=row.snapshot_at,
        opened_from=SessionId(row.opened_from) if row.opened_from else None,
        policy_hash=row.policy_hash,
    )
