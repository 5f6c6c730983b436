"""SQL for snapshots."""

from __future__ import annotations

from sqlalchemy import Connection, exists, func, select, update

from codesdk.domain.calls import CallState
from codesdk.domain.ids import ArtifactId, HostId, SessionId, TenantId
from codesdk.domain.model import FrozenModel
from codesdk.sandbox.records.store import SandboxState
from codesdk.storage.database import database_now
from codesdk.storage.schema import sandboxes, sessions, tool_calls


class DueSnapshot(FrozenModel):
    """A session whose workspace may have changed since its last snapshot."""

    session: SessionId
    tenant: TenantId
    before: ArtifactId | None
    """The last snapshot."""
    at: float
    """Seconds since the epoch, on the database's clock. A snapshot that starts now has every call that ended before."""


_RUNS = exists().where(tool_calls.c.session_id == sessions.c.id, tool_calls.c.state == CallState.RUNNING.value)
# Only serial tools may write to the workspace: see registry.Tool.
_CHANGED = exists().where(
    tool_calls.c.session_id == sessions.c.id,
    tool_calls.c.serial,
    tool_calls.c.finished_at > func.coalesce(sessions.c.snapshot_at, 0.0),
    tool_calls.c.state == CallState.COMPLETED.value,
)
_DUE = select(
    sessions.c.id.label("session"),
    sessions.c.tenant_id.label("tenant"),
    sessions.c.snapshot_artifact.label("before"),
    database_now().label("at"),
).where(sessions.c.snapshots, _CHANGED)


def due_snapshots(
    connection: Connection, host: HostId, every_s: float, session: SessionId | None = None
) -> list[DueSnapshot]:
    """Open sessions of the host with a write since their last snapshot and no running call. `session`: only this one."""
    query = _DUE.join(sandboxes, sandboxes.c.session_id == sessions.c.id).where(
        sessions.c.host_id == host,
        sessions.c.state == "open",
        sandboxes.c.state == SandboxState.READY.value,
        func.coalesce(sessions.c.snapshot_at, 0.0) <= database_now() - every_s,
        ~_RUNS,
    )
    if session is not None:
        query = query.where(sessions.c.id == session)
    return [DueSnapshot.model_validate(row._asdict()) for row in connection.execute(query.order_by(sessions.c.id))]


def due_for_closed(connection: Connection, session: SessionId) -> DueSnapshot | None:
    """The session if it is closed and a call has written since its last snapshot."""
    row = connection.execute(_DUE.where(sessions.c.id == session, sessions.c.state == "closed")).one_or_none()
    return DueSnapshot.model_validate(row._asdict()) if row else None


def record_snapshot(connection: Connection, session: SessionId, artifact: ArtifactId, at: float) -> None:
    """Record the session's last snapshot."""
    connection.execute(
        update(sessions).where(sessions.c.id == session).values(snapshot_artifact=artifact, snapshot_at=at)
    )
