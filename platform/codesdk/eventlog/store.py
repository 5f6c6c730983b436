"""The log's statements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, select, update
from sqlalchemy import insert as insert_into

from codesdk.domain.ids import SessionId
from codesdk.errors import InternalFault
from codesdk.storage.schema import events, sessions


class Row(NamedTuple):
    """One stored event."""

    seq: int
    time: str
    type: str
    body: str


def insert(connection: Connection, session: SessionId, row: dict[str, Any]) -> int:
    """Give the event the session's next number and store it; returns the number.

    Raises:
        InternalFault: there is no such session.
    """
    seq = connection.execute(
        update(sessions)
        .where(sessions.c.id == session)
        .values(last_seq=sessions.c.last_seq + 1)
        .returning(sessions.c.last_seq)
    ).scalar()
    if seq is None:
        raise InternalFault(f"An event names session {session}, which does not exist.")
    connection.execute(insert_into(events), {"seq": seq, **row})
    return int(seq)


def after(connection: Connection, session: SessionId, seq: int, limit: int) -> list[Row]:
    """Rows with a higher number, in order."""
    query = (
        select(events.c.seq, events.c.time, events.c.type, events.c.body)
        .where(events.c.session_id == session, events.c.seq > seq)
        .order_by(events.c.seq)
        .limit(limit)
    )
    return [Row(*row) for row in connection.execute(query)]


def head(connection: Connection, session: SessionId) -> int:
    """The session's newest number, 0 where there is none."""
    return connection.execute(select(sessions.c.last_seq).where(sessions.c.id == session)).scalar() or 0


def place(connection: Connection, session: SessionId) -> tuple[str, int]:
    """The session's log epoch and its newest number."""
    row = connection.execute(select(sessions.c.log_epoch, sessions.c.last_seq).where(sessions.c.id == session)).first()
    return (row.log_epoch, row.last_seq) if row else ("", 0)


def heads(connection: Connection, ids: Sequence[SessionId]) -> dict[SessionId, int]:
    """The newest number of each session that exists."""
    query = select(sessions.c.id, sessions.c.last_seq).where(sessions.c.id.in_(ids))
    return {SessionId(row.id): row.last_seq for row in connection.execute(query)}
