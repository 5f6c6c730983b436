"""SQL for backups, exports, imports and retention."""

from __future__ import annotations

import json
from typing import NamedTuple

from sqlalchemy import ColumnElement, Connection, and_, delete, exists, func, select, update
from sqlalchemy import insert as insert_into

from codesdk.archive.export_format import SessionLine
from codesdk.artifacts.store import Blob
from codesdk.domain.ids import HostId, IdKind, Ids, PrincipalId, SessionId, TenantId
from codesdk.sandbox.records.store import SandboxState
from codesdk.storage.schema import (
    approval_demands,
    approval_feeds,
    approval_news,
    approval_tickets,
    approval_votes,
    approvals,
    artifacts,
    blobs,
    events,
    grants,
    hosts,
    removed_sessions,
    sandboxes,
    session_tokens,
    sessions,
    tenants,
    tool_calls,
    webhook_cursors,
    webhook_deliveries,
    webhook_endpoints,
)


class Owner(NamedTuple):
    """The owner of an imported session."""

    tenant: TenantId
    principal: PrincipalId
    host: HostId


# -- backups -----------------------------------------------------------------------------------------------------------


def named_blobs(connection: Connection) -> list[Blob]:
    """Every blob that an artifact names."""
    wanted = select(artifacts.c.blob_key)
    query = select(blobs.c.key, blobs.c.content_hash, blobs.c.size, blobs.c.digests).where(blobs.c.key.in_(wanted))
    return [Blob(*row) for row in connection.execute(query.order_by(blobs.c.key))]


def renew_epochs(connection: Connection, ids: Ids) -> None:
    """Give every log and feed a new epoch, so that cursors of the original get a `resync`."""
    for session in list(connection.execute(select(sessions.c.id)).scalars()):
        connection.execute(update(sessions).where(sessions.c.id == session).values(log_epoch=ids.new(IdKind.REQUEST)))
    kept = {row.tenant_id: row.last for row in connection.execute(select(approval_feeds))}
    connection.execute(delete(approval_feeds))
    for tenant in connection.execute(select(tenants.c.id)).scalars().all():  # also those whose feed is empty
        fresh = {"tenant_id": tenant, "epoch": ids.new(IdKind.REQUEST), "last": kept.get(tenant, 0)}
        connection.execute(insert_into(approval_feeds), fresh)


def forget_endpoints(connection: Connection) -> None:
    """Delete the webhook endpoints: the original still delivers, and their sealing key is in no backup."""
    for table in (webhook_deliveries, webhook_endpoints, webhook_cursors):
        connection.execute(delete(table))


def forget_sandboxes(connection: Connection, reason: str) -> None:
    """Detach the original's sandboxes: mark those of sessions as gone, and delete those of the pool and of servers."""
    connection.execute(delete(sandboxes).where(sandboxes.c.session_id.is_(None)))
    connection.execute(
        update(sandboxes)
        .where(sandboxes.c.state != SandboxState.GONE.value)
        .values(state=SandboxState.GONE.value, reason=reason)
    )


def forget_engines(connection: Connection, now: float) -> None:
    """Detach the original's engines: each host takes the engine of its first worker."""
    connection.execute(update(hosts).values(engine="", left_at=now))


# -- exports and imports -----------------------------------------------------------------------------------------------


def all_sessions(connection: Connection) -> list[SessionId]:
    """Every session, oldest first."""
    query = select(sessions.c.id).order_by(sessions.c.created_at, sessions.c.id)
    return [SessionId(id_) for id_ in connection.execute(query).scalars()]


def session_line(connection: Connection, session: str) -> SessionLine | None:
    """The session's line in an export. None if it does not exist."""
    query = select(sessions, tenants.c.name.label("tenant")).join(tenants).where(sessions.c.id == session)
    row = connection.execute(query).one_or_none()
    if row is None:
        return None
    said = {name: value for name, value in row._asdict().items() if name in SessionLine.model_fields}
    return SessionLine.model_validate({**said, "profile": json.loads(row.profile), "labels": json.loads(row.labels)})


def host_named(connection: Connection, name: str, fresh: HostId, now: float) -> HostId:
    """Find the host of that name, or create it with the id `fresh` and no images, so that nothing is placed there."""
    found = connection.execute(select(hosts.c.id).where(hosts.c.name == name)).scalar()
    if found is not None:
        return HostId(found)
    row = {
        "id": fresh,
        "name": name,
        "generation": 1,
        "heartbeat": 0,
        "images": "{}",
        "registered_at": now,
        "left_at": now,
    }
    connection.execute(insert_into(hosts), row)
    return fresh


def has_session(connection: Connection, session: str) -> bool:
    """Whether any tenant has a session with that id."""
    return bool(connection.execute(select(exists().where(sessions.c.id == session))).scalar())


def has_artifact(connection: Connection, artifact: str) -> bool:
    """Whether any tenant has an artifact with that id."""
    return bool(connection.execute(select(exists().where(artifacts.c.id == artifact))).scalar())


def insert_session(connection: Connection, head: SessionLine, owner: Owner, *, epoch: str, now: float) -> None:
    """Insert the session as closed, and delete the record of an earlier removal."""
    connection.execute(delete(removed_sessions).where(removed_sessions.c.id == head.id))
    row = head.model_dump(mode="json", include={"id", "runtime", "permission_mode", "image", "created_at"})
    row |= {
        "tenant_id": owner.tenant,
        "principal_id": owner.principal,
        "host_id": owner.host,
        "state": "closed",
        "profile": json.dumps(head.profile),
        "labels": json.dumps(head.labels),
        "log_epoch": epoch,
        "closed_at": head.closed_at if head.closed_at is not None else now,
        "imported_at": now,
    }
    connection.execute(insert_into(sessions), row)


def insert_events(connection: Connection, rows: list[dict[str, object]]) -> None:
    """Insert events with their existing numbers."""
    connection.execute(insert_into(events), rows)


def set_last_seq(connection: Connection, session: SessionId, last: int, log_bytes: int) -> None:
    """Set the last event number of an imported session, and what its events count."""
    values = {"last_seq": last, "log_bytes": log_bytes}
    connection.execute(update(sessions).where(sessions.c.id == session).values(values))


# -- retention ---------------------------------------------------------------------------------------------------------


def prunable_sessions(connection: Connection, closed_before: float, limit: int, after: str = "") -> list[SessionId]:
    """Closed sessions whose sandbox is gone and whose artifacts seed no open session, in order of id after `after`."""
    query = select(sessions.c.id).where(_closed_before(closed_before), sessions.c.id > after)
    return [SessionId(id_) for id_ in connection.execute(query.order_by(sessions.c.id).limit(limit)).scalars()]


def lock_if_prunable(connection: Connection, session: SessionId, closed_before: float) -> bool:
    """Lock the session's row, then check that it may still be removed."""
    locked = select(sessions.c.id).where(sessions.c.id == session).with_for_update()
    if connection.execute(locked).scalar() is None:
        return False
    # A session seeded from its artifacts may be opening: either it is visible now, or it will not find them.
    owned = select(artifacts.c.id).where(artifacts.c.session_id == session).order_by(artifacts.c.id)
    connection.execute(owned.with_for_update()).all()
    query = select(sessions.c.id).where(sessions.c.id == session, _closed_before(closed_before))
    return connection.execute(query).scalar() is not None


def _closed_before(closed_before: float) -> ColumnElement[bool]:
    works_for = (sandboxes.c.session_id == sessions.c.id) | (sandboxes.c.serves == sessions.c.id)
    alive = exists().where(works_for, sandboxes.c.state != SandboxState.GONE.value)
    other = sessions.alias()
    seeds = exists().where(
        artifacts.c.session_id == sessions.c.id, other.c.seed_artifact == artifacts.c.id, other.c.state == "open"
    )
    return and_(sessions.c.state == "closed", sessions.c.closed_at < closed_before, ~alive, ~seeds)


def tenant_of(connection: Connection, session: SessionId) -> TenantId:
    """The session's tenant."""
    return TenantId(connection.execute(select(sessions.c.tenant_id).where(sessions.c.id == session)).scalar_one())


def count_contents(connection: Connection, session: SessionId) -> tuple[int, int]:
    """Count a session's events and artifacts."""
    owned = select(func.count()).where(artifacts.c.session_id == session).scalar_subquery()
    row = connection.execute(select(sessions.c.last_seq, owned).where(sessions.c.id == session)).one_or_none()
    return (row[0], row[1]) if row else (0, 0)


def remove_session(connection: Connection, session: SessionId, now: float, reason: str) -> int:
    """Delete the session except its artifacts, and record the removal. Returns the number of its events."""
    row = connection.execute(select(sessions).where(sessions.c.id == session)).one()
    note = {"id": row.id, "tenant_id": row.tenant_id, "last_seq": row.last_seq, "closed_at": row.closed_at}
    connection.execute(insert_into(removed_sessions), {**note, "removed_at": now, "reason": reason})
    asked = select(approvals.c.id).where(approvals.c.session_id == session)
    for table in (approval_votes, approval_demands):
        connection.execute(delete(table).where(table.c.approval_id.in_(asked)))
    for table in (
        webhook_deliveries,
        webhook_cursors,
        grants,
        approval_tickets,
        approval_news,
        approvals,
        tool_calls,
        session_tokens,
        sandboxes,
        events,
    ):
        connection.execute(delete(table).where(table.c.session_id == session))
    connection.execute(delete(sessions).where(sessions.c.id == session))
    return int(row.last_seq)
