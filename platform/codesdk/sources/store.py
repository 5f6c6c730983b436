"""Statements about servers: which tools are not what was accepted, and whose sessions are open."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from sqlalchemy import Connection, delete, select
from sqlalchemy import insert as insert_into

from codesdk.storage.schema import sessions, source_changes


class Seen(NamedTuple):
    """A tool that a server has changed, by hashes."""

    pinned: str
    seen: str
    """Empty: it has it no more."""


def note(connection: Connection, source: str, changed: Mapping[str, Seen], now: float) -> None:
    """Write down what of a source is changed now, and nothing else of it."""
    connection.execute(delete(source_changes).where(source_changes.c.source == source))
    rows = [
        {"source": source, "tool": tool, "pinned": seen.pinned, "seen": seen.seen, "at": now}
        for tool, seen in sorted(changed.items())
    ]
    if rows:
        connection.execute(insert_into(source_changes), rows)


def changes(connection: Connection) -> dict[tuple[str, str], Seen]:
    """By source, and by the server's own name of the tool."""
    rows = connection.execute(select(source_changes))
    return {(row.source, row.tool): Seen(row.pinned, row.seen) for row in rows}


def closed(connection: Connection, among: Collection[str]) -> set[str]:
    """Which of these sessions are not open any more."""
    query = select(sessions.c.id).where(sessions.c.id.in_(list(among)), sessions.c.state == "open")
    return set(among) - set(connection.execute(query).scalars())
