"""The log's statements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import Connection, String, bindparam, select

from codesdk.domain.ids import SessionId
from codesdk.errors import InternalFault
from codesdk.storage.schema import events, sessions


class Row(NamedTuple):
    """One stored event."""

    seq: int
    time: str
    type: str
    body: str


class Fresh(NamedTuple):
    """An event that has no number yet."""

    time: str
    type: str
    body: str


# Statements are built once: building one costs several times what the database needs to run it. Those that every append
# runs are text for the driver, since even a built one costs SQLAlchemy more than SQLite.
_SESSION = bindparam("session", type_=String)
_ADVANCE = {
    "sqlite": "UPDATE sessions SET last_seq = last_seq + ? WHERE id = ? RETURNING last_seq",
    "postgresql": "UPDATE sessions SET last_seq = last_seq + %s WHERE id = %s RETURNING last_seq",
}
_INSERT = {
    "sqlite": "INSERT INTO events (session_id, seq, time, type, body) VALUES (?, ?, ?, ?, ?)",
    # One statement with five arrays: a statement for each row would cost the server more than the row.
    "postgresql": "INSERT INTO events (session_id, seq, time, type, body)"
    " SELECT * FROM unnest(%s::text[], %s::bigint[], %s::text[], %s::text[], %s::text[])",
}
_AFTER = (
    select(events.c.seq, events.c.time, events.c.type, events.c.body)
    .where(events.c.session_id == _SESSION, events.c.seq > bindparam("after"))
    .order_by(events.c.seq)
    .limit(bindparam("most"))
)
_HEAD = select(sessions.c.last_seq).where(sessions.c.id == _SESSION)


def insert(connection: Connection, gathered: dict[str, list[Fresh]]) -> None:
    """Give the events of each session its next numbers, in order, and store them all.

    Sessions come in the order of their ids, which is the order in which every process takes their locks.

    Raises:
        InternalFault: there is no such session.
    """
    kind = connection.dialect.name
    rows: list[tuple[str, int, str, str, str]] = []
    for session, fresh in gathered.items():
        last = connection.exec_driver_sql(_ADVANCE[kind], (len(fresh), session)).scalar()
        if last is None:
            raise InternalFault(f"An event names session {session}, which does not exist.")
        rows += [(session, seq, *event) for seq, event in enumerate(fresh, last - len(fresh) + 1)]
    if kind == "sqlite":
        connection.exec_driver_sql(_INSERT[kind], rows)
    else:
        connection.exec_driver_sql(_INSERT[kind], tuple(list(column) for column in zip(*rows, strict=True)))


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
