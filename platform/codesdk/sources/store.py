"""SQL for MCP servers' status and for changes of their tools."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import Connection, delete, select
from sqlalchemy import insert as insert_into

from codesdk.domain.ids import HostId
from codesdk.sources.servers.server_status import ServerRecord, ServerStatus
from codesdk.storage.schema import hosts, sessions, source_changes, source_servers


class ToolChange(NamedTuple):
    """The hashes of a changed tool."""

    pinned: str
    seen: str
    """Empty if the tool was removed."""


def replace_changes(connection: Connection, source: str, changed: Mapping[str, ToolChange], now: float) -> None:
    """Replace the recorded changes of a source."""
    connection.execute(delete(source_changes).where(source_changes.c.source == source))
    rows = [
        {"source": source, "tool": tool, "pinned": seen.pinned, "seen": seen.seen, "at": now}
        for tool, seen in sorted(changed.items())
    ]
    if rows:
        connection.execute(insert_into(source_changes), rows)


def list_changes(connection: Connection) -> dict[tuple[str, str], ToolChange]:
    """Changes by source and the server's name of the tool."""
    rows = connection.execute(select(source_changes))
    return {(row.source, row.tool): ToolChange(row.pinned, row.seen) for row in rows}


def closed_sessions(connection: Connection, among: Collection[str]) -> set[str]:
    """Those of the sessions that are no longer open."""
    query = select(sessions.c.id).where(sessions.c.id.in_(list(among)), sessions.c.state == "open")
    return set(among) - set(connection.execute(query).scalars())


def replace_servers(connection: Connection, host: HostId, generation: int, servers: Sequence[ServerStatus]) -> None:
    """Replace the servers of a host."""
    connection.execute(delete(source_servers).where(source_servers.c.host_id == host))
    rows = [
        {"host_id": host, "generation": generation, "number": number, **each.model_dump(mode="json")}
        for number, each in enumerate(servers)
    ]
    if rows:
        connection.execute(insert_into(source_servers), rows)


def list_servers(connection: Connection) -> list[ServerRecord]:
    """The servers of all workers that still own their host and haven't left it."""
    query = (
        select(source_servers, hosts.c.name.label("host"))
        .join(hosts, hosts.c.id == source_servers.c.host_id)
        .where(hosts.c.generation == source_servers.c.generation, hosts.c.left_at.is_(None))
        .order_by(hosts.c.name, source_servers.c.source, source_servers.c.session_id, source_servers.c.number)
    )
    names = ServerRecord.model_fields
    return [
        ServerRecord.model_validate({name: value for name, value in row._asdict().items() if name in names})
        for row in connection.execute(query)
    ]
