"""The log's statements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, String, bindparam, select, update
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


# Statements are built once: building one costs several times what SQLite needs to run it.
_SESSION = bindparam("session", type_=String)
_ADVANCE = (
    update(sessions)
    .where(sessions.c.id == _SESSION)
    .values(last_seq=sessions.c.last_seq + bindparam("count"))
    .returning(sessions.c.last_seq)
)
_INSERT = insert_into(events)
_AFTER = (
    select(events.c.seq, events.c.time, events.c.type, events.c.body)
    .where(events.c.session_id == _SESSION, events.c.seq > bindparam("after"))
    .order_by(events.c.seq)
    .limit(bindparam("most"))
)
_HEAD = select(sessions.c.last_seq).where(sessions.c.id == _SESSION)


def insert(connection: Connection, session: SessionId, rows: list[dict[str, Any]]) -> None:
    """Give the events the session's next numbers, in order, and store them.

    Raises:
        InternalFault: there is no such session.
    """
    last = connection.execute(_ADVANCE, {"session": session, "count": len(rows)}).scalar()
    if last is None:
        raise InternalFault(f"An event names session {session}, which does not exist.")
    first = last - len(rows) + 1
    connection.execute(_INSERT, [{"seq": first + place, **row} for place, row in enumerate(rows)])


def after(connection: Connection, session: SessionId, seq: int, limit: int) -> list[Row]:
    """Rows with a higher number, in order."""
    found = connection.execute(_AFTER, {"session": session, "after": seq, "most": limit})
    return [Row(*row) for row in found]


def head(connection: Connection, session: SessionId) -> int:
    """The session's newest number, 0 where there is none."""
    return connection.execute(_HEAD, {"session": session}).scalar() or 0


def place(connection: Connection, session: SessionId) -> tuple[str, int]:
    """The session's log epoch and its newest number."""
    row = connection.execute(select(sessions.c.log_epoch, sessions.c.last_seq).where(sessions.c.id == session)).first()
    return (row.log_epoch, row.last_seq) if row else ("", 0)


def heads(connection: Connection, ids: Sequence[SessionId]) -> dict[SessionId, int]:
    """The newest number of each session that exists."""
    query = select(sessions.c.id, sessions.c.last_seq).where(sessions.c.id.in_(ids))
    return {SessionId(row.id): row.last_seq for row in connection.execute(query)}
