"""SQL for hosts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, bindparam, func, literal_column, select, update
from sqlalchemy import insert as insert_into

from codesdk.domain.calls import CallState
from codesdk.domain.ids import HostId
from codesdk.domain.sandbox_resources import Need, profile_needs, total_need
from codesdk.hosts.host import Capacity, HostRecord, HostState
from codesdk.storage.expressions import database_now
from codesdk.storage.schema import hosts, sandboxes, tool_calls

# A literal, so that SQLite uses its partial index.
_LIVING = sandboxes.c.state != literal_column("'gone'")
_RESERVED = (
    select(
        sandboxes.c.host_id,
        sandboxes.c.profile,
        func.count().label("sandboxes"),
        func.count(sandboxes.c.session_id).label("sessions"),
    )
    .where(_LIVING, sandboxes.c.session_id.is_not(None) | sandboxes.c.serves.is_not(None))
    .group_by(sandboxes.c.host_id, sandboxes.c.profile)
)
_CALLS = (
    select(tool_calls.c.host_id, tool_calls.c.state, func.count().label("calls"))
    .where(
        tool_calls.c.host_id.in_(bindparam("hosts", expanding=True)),
        tool_calls.c.state.in_([CallState.QUEUED.value, CallState.RUNNING.value]),
    )
    .group_by(tool_calls.c.host_id, tool_calls.c.state)
)


class _Reserved(NamedTuple):
    """Live sandboxes of one profile on a host, of sessions and of MCP servers."""

    need: Need
    sandboxes: int
    sessions: int


class HostLease(NamedTuple):
    """Who serves a host, and its last heartbeat."""

    holder: str
    """See `worker.ownership.takeover.Holder`. Empty if the worker did not record it."""
    generation: int
    heartbeat: int
    silent_s: float
    """Seconds since the last heartbeat, on the database's clock."""
    is_over: bool
    """The worker was stopped normally, or the host was declared lost."""


_HOSTS = select(hosts, (database_now() - hosts.c.heard_at).label("silent_s"))
# The placeholder host of imported sessions, which no worker serves. See `archive.log_import`.
_NEVER_SERVED = (hosts.c.heartbeat == 0) & hosts.c.heard_at.is_(None) & hosts.c.left_at.is_not(None)
_SERVED = _HOSTS.where(~_NEVER_SERVED)
# Built once: it runs with each claim.
_GENERATION = select(hosts.c.generation).where(hosts.c.id == bindparam("host"))


def list_hosts(connection: Connection) -> list[HostRecord]:
    """All hosts by name, with what is reserved on each."""
    taken = _reserved_by_host(connection)
    return [_record(row, taken) for row in connection.execute(_SERVED.order_by(hosts.c.name))]


def with_calls(connection: Connection, found: list[HostRecord]) -> list[HostRecord]:
    """The same hosts with their queued and running calls counted."""
    counted: dict[tuple[str, str], int] = {
        (row.host_id, row.state): row.calls
        for row in connection.execute(_CALLS, {"hosts": [host.id for host in found]})
    }
    return [
        host.model_copy(
            update={
                "queued_calls": counted.get((host.id, CallState.QUEUED.value), 0),
                "running_calls": counted.get((host.id, CallState.RUNNING.value), 0),
            }
        )
        for host in found
    ]


def list_all(connection: Connection) -> list[HostRecord]:
    """All hosts by id, without what is reserved on them."""
    return [_record(row, {}) for row in connection.execute(_HOSTS.order_by(hosts.c.id))]


def find(connection: Connection, wanted: str) -> HostRecord | None:
    """The host of that name or id."""
    query = _SERVED.where((hosts.c.id == wanted) | (hosts.c.name == wanted))
    row = connection.execute(query.order_by(hosts.c.id)).first()
    return _record(row, _reserved_by_host(connection, HostId(row.id))) if row else None


def lock_named(connection: Connection, name: str) -> HostRecord | None:
    """The host of exactly that name, held until the unit ends."""
    row = connection.execute(_HOSTS.where(hosts.c.name == name).with_for_update(of=hosts)).one_or_none()
    return _record(row, {}) if row else None


def find_lease(connection: Connection, name: str, *, lock: bool = False) -> HostLease | None:
    """The lease of the host with that name. None if it was never served. `lock`: lock its row until the unit ends."""
    query = _HOSTS.where(hosts.c.name == name)
    row = connection.execute(query.with_for_update(of=hosts) if lock else query).one_or_none()
    if row is None or row.silent_s is None:
        return None
    is_over = row.left_at is not None or row.state == HostState.LOST.value
    return HostLease(row.holder, row.generation, row.heartbeat, max(0.0, row.silent_s), is_over)


def is_current(connection: Connection, host: HostId, generation: int) -> bool:
    """Whether the generation is current: no newer worker, and not declared lost."""
    found = connection.execute(_GENERATION, {"host": host}).scalar()
    return bool(found == generation)


def lock(connection: Connection, host: HostId) -> bool:
    """Lock the host against placement, draining and loss until the unit ends.

    False: not needed, since SQLite has one writer. True: values read before may have changed.
    """
    if connection.dialect.name == "sqlite":
        return False
    connection.execute(select(hosts.c.id).where(hosts.c.id == host).with_for_update(key_share=True))
    return True


def find_by_engine(connection: Connection, engine: str, but: str) -> HostRecord | None:
    """The host with that engine under another name than `but`, unless it was declared lost."""
    query = select(hosts.c.id).where(
        hosts.c.engine == engine, hosts.c.name != but, hosts.c.state != HostState.LOST.value
    )
    found = connection.execute(query.order_by(hosts.c.id)).scalars().first()
    return find(connection, found) if found else None


def take_over(connection: Connection, name: str, now: float, offer: Mapping[str, Any]) -> tuple[HostId, int] | None:
    """Raise a known host's generation. Returns its id and new generation; None if the name is new.

    A lost host becomes active; a draining one stays draining. `offer`: the columns that the worker sets.
    """
    row = connection.execute(
        update(hosts)
        .where(hosts.c.name == name)
        .values(
            generation=hosts.c.generation + 1,
            registered_at=now,
            left_at=None,
            heard_at=database_now(),
            state=func.coalesce(func.nullif(hosts.c.state, HostState.LOST.value), HostState.ACTIVE.value),
            **offer,
        )
        .returning(hosts.c.id, hosts.c.generation)
    ).one_or_none()
    return (HostId(row.id), row.generation) if row else None


def insert(connection: Connection, host: HostId, name: str, now: float, offer: Mapping[str, Any]) -> None:
    """Add a host of generation 1."""
    made = {"id": host, "name": name, "generation": 1, "heartbeat": 0, "registered_at": now, **offer}
    connection.execute(insert_into(hosts).values(**made, heard_at=database_now()))


def record_heartbeat(connection: Connection, host: HostId, generation: int) -> bool:
    """Record a heartbeat. False: a newer worker has the host, or it was declared lost."""
    changed = connection.execute(
        update(hosts)
        .where(hosts.c.id == host, hosts.c.generation == generation)
        .values(heartbeat=hosts.c.heartbeat + 1, heard_at=database_now())
    )
    return changed.rowcount == 1


def mark_stopped(connection: Connection, host: HostId, generation: int, now: float) -> bool:
    """Record a normal stop. False: the host is no longer that worker's."""
    changed = connection.execute(
        update(hosts).where(hosts.c.id == host, hosts.c.generation == generation).values(left_at=now)
    )
    return changed.rowcount == 1


def set_state(connection: Connection, host: HostId, before: HostState, after: HostState) -> bool:
    """Change the state if it is `before`."""
    changed = connection.execute(
        update(hosts).where(hosts.c.id == host, hosts.c.state == before.value).values(state=after.value)
    )
    return changed.rowcount == 1


def mark_lost(connection: Connection, host: HostId, *, generation: int, heartbeat: int | None = None) -> int | None:
    """Declare the host lost if generation and, if given, heartbeat are unchanged.

    Returns the new generation. It fences the old worker, which can write nothing any more.
    """
    query = update(hosts).where(
        hosts.c.id == host, hosts.c.generation == generation, hosts.c.state != HostState.LOST.value
    )
    if heartbeat is not None:
        query = query.where(hosts.c.heartbeat == heartbeat, hosts.c.left_at.is_(None))
    return connection.execute(
        query.values(state=HostState.LOST.value, generation=hosts.c.generation + 1).returning(hosts.c.generation)
    ).scalar_one_or_none()


def is_lost(connection: Connection, host: HostId) -> bool:
    """Whether it is lost. Locks the row until the unit ends."""
    lock(connection, host)
    state = connection.execute(select(hosts.c.state).where(hosts.c.id == host)).scalar()
    return bool(state == HostState.LOST.value)


def _reserved_by_host(connection: Connection, host: HostId | None = None) -> dict[str, list[_Reserved]]:
    query = _RESERVED if host is None else _RESERVED.where(sandboxes.c.host_id == host)
    taken: dict[str, list[_Reserved]] = {}
    for row in connection.execute(query):
        found = _Reserved(profile_needs(json.loads(row.profile)), row.sandboxes, row.sessions)
        taken.setdefault(row.host_id, []).append(found)
    return taken


def _record(row: Row[Any], taken: Mapping[str, list[_Reserved]]) -> HostRecord:
    here = taken.get(row.id, [])
    return HostRecord(
        id=HostId(row.id),
        name=row.name,
        engine=row.engine,
        state=HostState(row.state),
        away=row.left_at is not None,
        capacity=Capacity(memory_bytes=row.memory_bytes, millicpus=row.millicpus, sessions=row.most_sessions),
        reserved=total_need((each.need, each.sandboxes) for each in here),
        sessions=sum(each.sessions for each in here),
        labels=json.loads(row.labels),
        images=json.loads(row.images),
        generation=row.generation,
        heartbeat=row.heartbeat,
        silent_s=None if row.silent_s is None else max(0.0, round(row.silent_s, 3)),
        registered_at=row.registered_at,
    )
