"""The archive's statements."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Connection, delete, select, update

from codesdk.artifacts.store import Blob
from codesdk.domain.ids import Ids, Kind, SessionId, ToolCallId
from codesdk.sandbox.store import SandboxState
from codesdk.storage.schema import artifacts, blobs, events, sandboxes, sessions


def named_blobs(connection: Connection) -> list[Blob]:
    """Every blob that an artifact names."""
    wanted = select(artifacts.c.blob_key)
    query = select(blobs.c.key, blobs.c.content_hash, blobs.c.size, blobs.c.digests).where(blobs.c.key.in_(wanted))
    return [Blob(*row) for row in connection.execute(query.order_by(blobs.c.key))]


def renew_epochs(connection: Connection, ids: Ids) -> None:
    """Give every log another epoch: a reader of the original is told to begin anew."""
    for session in list(connection.execute(select(sessions.c.id)).scalars()):
        connection.execute(update(sessions).where(sessions.c.id == session).values(log_epoch=ids.new(Kind.REQUEST)))


def forget_sandboxes(connection: Connection, reason: str) -> None:
    """No sandbox of the original is this copy's: sessions' are gone, and the pool's were nobody's."""
    connection.execute(delete(sandboxes).where(sandboxes.c.session_id.is_(None)))
    connection.execute(
        update(sandboxes)
        .where(sandboxes.c.state != SandboxState.GONE.value)
        .values(state=SandboxState.GONE.value, reason=reason)
    )


def start_of(connection: Connection, session: SessionId, call: ToolCallId) -> dict[str, Any]:
    """What the log says of how a call was started; empty where it does not."""
    query = select(events.c.body).where(events.c.session_id == session, events.c.type == "tool.call.started")
    for body in connection.execute(query.order_by(events.c.seq.desc())).scalars():
        payload: dict[str, Any] = json.loads(body)["payload"]
        if payload.get("tool_call_id") == call:
            return payload
    return {}
