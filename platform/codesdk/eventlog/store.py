"""SQL for the event log."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import Connection, String, bindparam, func, select

from codesdk.domain.ids import SessionId
from codesdk.errors import InternalFault
from codesdk.storage.schema import events, sessions


class EventRow(NamedTuple):
    """A stored event."""

    seq: int
    time: str
    type: str
    body: str


class NewEventRow(NamedTuple):
    """An event without a `seq` yet."""

    time: str
    type: str
    body: str
    counts: int
    """Bytes that it adds to its session's `log_bytes`, with rows that are written along with it."""


# Statements are built once: building one costs several times what running it does. Those of every append are plain
# driver SQL, because even a prebuilt SQLAlchemy statement costs more than SQLite itself.
_SESSION = bindparam("session", type_=String)
_ADVANCE_ONE = (
    "UPDATE sessions SET last_seq = last_seq + ?, log_bytes = log_bytes + ? WHERE id = ? RETURNING id, last_seq"
)
_ADVANCE = (
    "UPDATE sessions SET last_seq = last_seq + json_extract(grown.value, '$[0]'),"
    " log_bytes = log_bytes + json_extract(grown.value, '$[1]')"
    " FROM json_each(?) AS grown WHERE sessions.id = grown.key RETURNING sessions.id, last_seq"
)
_INSERT = "INSERT INTO events (session_id, seq, time, type, body) VALUES (?, ?, ?, ?, ?)"
# One round trip. Locks the session rows first and in one order, with the lock that updating the counter takes: FOR
# UPDATE would also wait for every unit that has just inserted a row that references the session.
_APPEND = """
WITH held AS (SELECT id FROM sessions WHERE id = ANY(%s::text[]) ORDER BY id COLLATE "C" FOR NO KEY UPDATE),
moved AS (
    UPDATE sessions SET last_seq = last_seq + grown.count, log_bytes = log_bytes + grown.bytes
    FROM unnest(%s::text[], %s::bigint[], %s::bigint[]) AS grown (id, count, bytes) JOIN held ON held.id = grown.id
    WHERE sessions.id = held.id
    RETURNING sessions.id, last_seq - grown.count AS before
)
INSERT INTO events (session_id, seq, time, type, body)
SELECT moved.id, moved.before + fresh.place, fresh.time, fresh.type, fresh.body
FROM unnest(%s::text[], %s::bigint[], %s::text[], %s::text[], %s::text[]) AS fresh (session, place, time, type, body)
JOIN moved ON moved.id = fresh.session
"""
_AFTER = (
    select(events.c.seq, events.c.time, events.c.type, events.c.body)
    .where(events.c.session_id == _SESSION, events.c.seq > bindparam("after"))
    .order_by(events.c.seq)
    .limit(bindparam("most"))
)
# A server sends all rows of a statement at once, so it chooses them itself. The sizes cost it little: it need not read the
# bodies for them.
_BEFORE = func.sum(func.octet_length(events.c.body)).over(order_by=events.c.seq) - func.octet_length(events.c.body)
_FOUND = _AFTER.add_columns(_BEFORE.label("before")).subquery()
_PAGE = (
    select(_FOUND.c.seq, _FOUND.c.time, _FOUND.c.type, _FOUND.c.body)
    .where(_FOUND.c.before <= bindparam("bytes"))
    .order_by(_FOUND.c.seq)
)
_HEAD = select(sessions.c.last_seq).where(sessions.c.id == _SESSION)


def insert(connection: Connection, gathered: dict[str, list[NewEventRow]]) -> None:
    """Assign the next `seq` numbers to each session's events, in order, and insert them. Counts their bytes as well.

    The counter is in the session's row, which is locked and changed for the numbers anyway: it costs no statement, and no
    two sessions wait for each other.

    Sessions arrive ordered by id, which is the order in which every process takes their locks.

    Raises:
        InternalFault: a session doesn't exist.
    """
    counts = {session: len(fresh) for session, fresh in gathered.items()}
    stored = _insert_sqlite if connection.dialect.name == "sqlite" else _insert_postgresql
    if not stored(connection, gathered, counts):
        raise InternalFault(f"An event names a session that does not exist: one of {', '.join(counts)}.")


def _insert_sqlite(connection: Connection, gathered: dict[str, list[NewEventRow]], counts: dict[str, int]) -> bool:
    if len(counts) == 1:
        ((session, count),) = counts.items()
        moved = connection.exec_driver_sql(_ADVANCE_ONE, (count, _bytes(gathered[session]), session)).all()
    else:
        grown = {session: (count, _bytes(gathered[session])) for session, count in counts.items()}
        moved = connection.exec_driver_sql(_ADVANCE, (json.dumps(grown),)).all()
    if len(moved) != len(counts):
        return False
    before = {session: last - counts[session] for session, last in moved}
    rows = [
        (session, seq, event.time, event.type, event.body)
        for session, fresh in gathered.items()
        for seq, event in enumerate(fresh, before[session] + 1)
    ]
    connection.exec_driver_sql(_INSERT, rows)
    return True


def _insert_postgresql(connection: Connection, gathered: dict[str, list[NewEventRow]], counts: dict[str, int]) -> bool:
    rows = [
        (session, place, event.time, event.type, event.body)
        for session, fresh in gathered.items()
        for place, event in enumerate(fresh, 1)
    ]
    sessions_, columns = list(counts), [list(column) for column in zip(*rows, strict=True)]
    sizes = [_bytes(fresh) for fresh in gathered.values()]
    done = connection.exec_driver_sql(_APPEND, (sessions_, sessions_, list(counts.values()), sizes, *columns))
    return done.rowcount == len(rows)


def _bytes(fresh: list[NewEventRow]) -> int:
    return sum(event.counts for event in fresh)


def after(connection: Connection, session: SessionId, seq: int, limit: int) -> list[EventRow]:
    """Return the events after `seq`, in order."""
    found = connection.execute(_AFTER, {"session": session, "after": seq, "most": limit})
    return [EventRow(*row) for row in found]


def page(
    connection: Connection, session: SessionId, seq: int, limit: int, most_bytes: int
) -> tuple[list[EventRow], bool]:
    """Return the events after `seq`, in order, up to the one with which their bodies exceed `most_bytes`.

    Also returns whether they are the last ones.
    """
    given = {"session": session, "after": seq, "most": limit, "bytes": most_bytes}
    found = connection.execute(_AFTER if connection.dialect.name == "sqlite" else _PAGE, given)
    rows: list[EventRow] = []
    size = 0
    for row in found:  # SQLite reads each row only here
        rows.append(EventRow(*row))
        size += len(row.body.encode())
        if size > most_bytes:
            found.close()
            break
    return rows, len(rows) < limit and size <= most_bytes


def head(connection: Connection, session: SessionId) -> int:
    """Return the session's newest `seq`; 0 if it doesn't exist."""
    return connection.execute(_HEAD, {"session": session}).scalar() or 0


def log_position(connection: Connection, session: SessionId) -> tuple[str, int]:
    """Return the session's log epoch and newest `seq`."""
    row = connection.execute(select(sessions.c.log_epoch, sessions.c.last_seq).where(sessions.c.id == session)).first()
    return (row.log_epoch, row.last_seq) if row else ("", 0)


def heads(connection: Connection, ids: Sequence[SessionId]) -> dict[SessionId, int]:
    """Return the newest `seq` of each existing session."""
    query = select(sessions.c.id, sessions.c.last_seq).where(sessions.c.id.in_(ids))
    return {SessionId(row.id): row.last_seq for row in connection.execute(query)}
