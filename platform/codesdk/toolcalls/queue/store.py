"""Whose turn it is: the statements that keep tenants fair to one another and a session's calls in their order.

A tenant's *turn* on a host is one row with its position in a virtual time (stride scheduling: a claim moves it by
1 / weight, and the lowest position is served). A claim therefore costs the same whether ten tenants wait or thousands.
`waiting` says that the tenant may have a call that could start; where a claim finds that it has none, or may not have
one more running, it takes the mark away, and whatever changes that sets it again. `stamp` counts those changes: a mark
is taken away only if nothing was changed since it was read, however many processes write.

A queued call is *held* while its session may not have it running: another one writes to the same workspace, or as many
run as the session may have at once. Held ones are let go one by one, in the transaction that makes room, under the lock
of the session's counter (docs/adr/0020).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Float, bindparam, case, exists, false, func, or_, select, true, update
from sqlalchemy import insert as insert_into

from codesdk.domain.calls import CallState
from codesdk.domain.ids import HostId, SessionId, TenantId, ToolCallId
from codesdk.domain.subjects import Subject
from codesdk.jobs import Wakeups
from codesdk.storage.schema import hosts, sessions, tenants, tool_calls, turns
from codesdk.storage.writer import Unit

_QUEUED = CallState.QUEUED.value
_RUNNING = CallState.RUNNING.value
_others = turns.alias("others")


def _now(host: ColumnElement[str]) -> ColumnElement[float]:
    """Where who comes to that host's queue stands: beside those who wait; where nobody does, beside the most served.

    Nobody gains by having been away.
    """
    lowest = select(func.min(_others.c.position)).where(_others.c.host_id == host, _others.c.waiting)
    highest = select(func.max(_others.c.position)).where(_others.c.host_id == host)
    return func.coalesce(lowest.scalar_subquery(), highest.scalar_subquery(), 0.0)


_NOW = _now(turns.c.host_id)
_RETURN_POSITION = case((turns.c.waiting, turns.c.position), (turns.c.position < _NOW, _NOW), else_=turns.c.position)
_HAS_QUEUED = exists().where(
    tool_calls.c.host_id == turns.c.host_id,
    tool_calls.c.tenant_id == turns.c.tenant_id,
    tool_calls.c.state == _QUEUED,
)
_COULD_START = exists().where(
    tool_calls.c.host_id == turns.c.host_id,
    tool_calls.c.tenant_id == turns.c.tenant_id,
    tool_calls.c.state == _QUEUED,
    tool_calls.c.held.is_(False),
)
_OF_TENANT = (turns.c.host_id == bindparam("host")) & (turns.c.tenant_id == bindparam("tenant"))
_MARK_WAITING = {"waiting": true(), "position": _RETURN_POSITION, "stamp": turns.c.stamp + 1}
_REJOIN = update(turns).where(_OF_TENANT).values(_MARK_WAITING)
_JOIN = insert_into(turns).values(
    host_id=bindparam("host"),
    tenant_id=bindparam("tenant"),
    waiting=true(),
    stamp=0,
    position=_now(bindparam("host")),
)
_MARK_TENANT_WAITING = update(turns).where(turns.c.tenant_id == bindparam("tenant"), _HAS_QUEUED).values(_MARK_WAITING)
_MISSED = (turns.c.host_id == bindparam("host")) & turns.c.waiting.is_(False) & _COULD_START
_FIND_MISSED = select(turns.c.tenant_id).where(_MISSED).limit(1)
_MARK_MISSED = update(turns).where(_MISSED).values(_MARK_WAITING)
_NEXT_TENANT = (
    select(turns.c.tenant_id, turns.c.position, turns.c.stamp, tenants.c.weight)
    .join(tenants, tenants.c.id == turns.c.tenant_id)
    .where(
        turns.c.host_id == bindparam("host"),
        turns.c.waiting,
        exists().where(hosts.c.id == turns.c.host_id, hosts.c.generation == bindparam("generation")),
        or_(
            turns.c.position > bindparam("position", type_=Float),
            (turns.c.position == bindparam("position", type_=Float)) & (turns.c.tenant_id > bindparam("after")),
        ),
    )
    .order_by(turns.c.position, turns.c.tenant_id)
    .limit(1)
)
_HAS_CANDIDATES = select(turns.c.tenant_id).where(turns.c.host_id == bindparam("host"), turns.c.waiting).limit(1)
_MARK_SERVED = (
    update(turns)
    .where(_OF_TENANT)
    .values(
        position=turns.c.position + bindparam("stride", type_=Float),
        waiting=(turns.c.stamp != bindparam("seen")) | _COULD_START,
    )
)
_MARK_SKIPPED = update(turns).where(_OF_TENANT, turns.c.stamp == bindparam("seen")).values(waiting=false())

_active = tool_calls.alias("active")
_held = tool_calls.alias("held_calls")
_ACTIVE = (_active.c.session_id == bindparam("session")) & (
    (_active.c.state == _RUNNING) | ((_active.c.state == _QUEUED) & _active.c.held.is_(False))
)
_RELEASE_NEXT = (
    update(tool_calls)
    .where(
        tool_calls.c.id
        == select(_held.c.id)
        .where(
            _held.c.session_id == bindparam("session"),
            _held.c.state == _QUEUED,
            _held.c.held,
            _held.c.serial.is_(False) | ~exists().where(_ACTIVE, _active.c.serial),
        )
        .order_by(_held.c.queued_at, _held.c.id)
        .limit(1)
        .scalar_subquery(),
        select(func.count()).select_from(_active).where(_ACTIVE).scalar_subquery()
        < select(sessions.c.parallel_calls).where(sessions.c.id == bindparam("session")).scalar_subquery(),
    )
    .values(held=false())
)
_SESSIONS_WITH_HELD = (
    select(tool_calls.c.session_id)
    .distinct()
    .where(tool_calls.c.host_id == bindparam("host"), tool_calls.c.state == _QUEUED, tool_calls.c.held)
)


class QueuePosition(NamedTuple):
    """The tenant to be served, as it was read."""

    tenant: TenantId
    position: float
    stamp: int
    weight: int


def _mark_tenant_waiting(connection: Connection, host: HostId, tenant: TenantId) -> None:
    """A call of the tenant was queued there."""
    place = {"host": host, "tenant": tenant}
    if connection.execute(_REJOIN, place).rowcount == 0:
        connection.execute(_JOIN, place)


def _tenant_freed(connection: Connection, tenant: TenantId) -> None:
    """A call of the tenant ended: where more are queued, on whatever host, one may start."""
    connection.execute(_MARK_TENANT_WAITING, {"tenant": tenant})


def has_candidates(connection: Connection, host: HostId) -> bool:
    """Whether some call of that host may be able to start; cheap, for looks that mostly find nothing."""
    return connection.execute(_HAS_CANDIDATES, {"host": host}).first() is not None


def _next_tenant(
    connection: Connection, host: HostId, generation: int, after: QueuePosition | None
) -> QueuePosition | None:
    """Whose turn it is there; `after`: or would be, without this one and those before it."""
    where: dict[str, Any] = {"host": host, "generation": generation, "position": after.position if after else -1.0}
    row = connection.execute(_NEXT_TENANT, where | {"after": after.tenant if after else ""}).one_or_none()
    return QueuePosition(TenantId(row.tenant_id), row.position, row.stamp, row.weight) if row else None


def _mark_served(connection: Connection, host: HostId, turn: QueuePosition) -> None:
    """A call of the tenant was taken off the queue."""
    connection.execute(
        _MARK_SERVED, {"host": host, "tenant": turn.tenant, "stride": 1.0 / turn.weight, "seen": turn.stamp}
    )


def _mark_skipped(connection: Connection, host: HostId, turn: QueuePosition) -> None:
    """The tenant has nothing that may start now."""
    connection.execute(_MARK_SKIPPED, {"host": host, "tenant": turn.tenant, "seen": turn.stamp})


def release_next(connection: Connection, session: SessionId) -> None:
    """Let go of the session's oldest held call that may run beside the others. Under the lock of its counter."""
    connection.execute(_RELEASE_NEXT, {"session": session})


def _sessions_with_held_calls(connection: Connection, host: HostId) -> list[SessionId]:
    """The sessions of that host with held calls."""
    return [SessionId(session) for session in connection.execute(_SESSIONS_WITH_HELD, {"host": host}).scalars()]


def has_missed_tenant(connection: Connection, host: HostId) -> bool:
    """Whether a tenant without the mark has a call that could start."""
    return connection.execute(_FIND_MISSED, {"host": host}).first() is not None


def rescan(connection: Connection, host: HostId) -> None:
    """Set the mark of every tenant that has a call that could start."""
    connection.execute(_MARK_MISSED, {"host": host})


# Everything here that writes is a last step, sessions before turns: the steps of one group of units run in the order of
# their keys, so no two processes wait for one another, and a session's held calls are let go under its counter's lock.


def enqueue(unit: Unit, wakeups: Wakeups, call: ToolCallId, subject: Subject, host: HostId) -> None:
    """A queued call was recorded: release it if it may run now, mark its tenant as waiting, and wake its host."""
    unit.at_end(f"session:{subject.session_id}", partial(release_next, session=subject.session_id))
    tenant = subject.tenant_id
    unit.at_end(f"turn:{tenant}", partial(_mark_tenant_waiting, host=host, tenant=tenant))
    unit.after_commit(lambda: wakeups.wake(host, call), urgent=True)


def release(unit: Unit, session: SessionId, tenant: TenantId) -> None:
    """A call that ran, or might have, has ended: another one may start."""
    unit.at_end(f"session:{session}", partial(release_next, session=session))
    unit.at_end(f"turn:{tenant}", partial(_tenant_freed, tenant=tenant))


def tenants_in_order(unit: Unit, host: HostId, generation: int) -> Iterator[QueuePosition]:
    """The tenants that may have a call to start, in the order in which they are to be served.

    None if a newer worker has the host, so that a worker that was frozen meanwhile starts nothing.
    """
    turn = _next_tenant(unit.connection, host, generation, None)
    while turn is not None:
        yield turn
        turn = _next_tenant(unit.connection, host, generation, turn)


def mark_served(unit: Unit, host: HostId, turn: QueuePosition) -> None:
    """Its call was taken off the queue."""
    unit.at_end(f"turn:{turn.tenant}", partial(_mark_served, host=host, turn=turn))


def mark_skipped(unit: Unit, host: HostId, turn: QueuePosition) -> None:
    """Nothing of it may start now; what changes that says so."""
    unit.at_end(f"turn:{turn.tenant}", partial(_mark_skipped, host=host, turn=turn))


def release_legacy_holds(unit: Unit, host: HostId) -> None:
    """Let go what a version without turns left behind."""
    for session in _sessions_with_held_calls(unit.connection, host):
        unit.at_end(f"session:{session}", partial(release_next, session=session))
    unit.at_end("turn:", partial(rescan, host=host))
