"""The hosts' statements."""

from __future__ import annotations

from sqlalchemy import Connection, update
from sqlalchemy import insert as insert_into

from codesdk.domain.ids import HostId
from codesdk.storage.schema import hosts


def take_over(connection: Connection, name: str, images: str, now: float) -> tuple[HostId, int] | None:
    """Raise a known host's generation; its id and new generation, None where the name is new."""
    row = connection.execute(
        update(hosts)
        .where(hosts.c.name == name)
        .values(generation=hosts.c.generation + 1, images=images, registered_at=now)
        .returning(hosts.c.id, hosts.c.generation)
    ).one_or_none()
    return (HostId(row.id), row.generation) if row else None


def insert(connection: Connection, host: HostId, name: str, images: str, now: float) -> None:
    """Add a host of generation 1."""
    row = {"id": host, "name": name, "generation": 1, "heartbeat": 0, "images": images, "registered_at": now}
    connection.execute(insert_into(hosts), row)


def beat(connection: Connection, host: HostId, generation: int) -> bool:
    """Count one heartbeat. False: a newer worker has taken the host over."""
    changed = connection.execute(
        update(hosts)
        .where(hosts.c.id == host, hosts.c.generation == generation)
        .values(heartbeat=hosts.c.heartbeat + 1)
    )
    return changed.rowcount == 1
