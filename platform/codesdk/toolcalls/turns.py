"""Who is served next on a host: one tenant after the other, and of a session no more than may run at once."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from codesdk.domain.ids import HostId, SessionId, TenantId
from codesdk.storage.writer import Unit
from codesdk.toolcalls import turn_store
from codesdk.toolcalls.turn_store import Turn

# Everything here that writes is a last step, sessions before turns: the steps of one group of units run in the order of
# their keys, so no two processes wait for one another, and a session's held calls are let go under its counter's lock.


def queue(unit: Unit, session: SessionId, host: HostId, tenant: TenantId) -> None:
    """A call was added to the queue, held: let it go if it may run now, and have its tenant served."""
    unit.last(f"session:{session}", partial(turn_store.let_next, session=session))
    unit.last(f"turn:{tenant}", partial(turn_store.stand, host=host, tenant=tenant))


def leave(unit: Unit, session: SessionId, tenant: TenantId) -> None:
    """A call that ran, or might have, has ended: another one may start."""
    unit.last(f"session:{session}", partial(turn_store.let_next, session=session))
    unit.last(f"turn:{tenant}", partial(turn_store.freed, tenant=tenant))


def in_order(unit: Unit, host: HostId) -> Iterator[Turn]:
    """The tenants that may have a call to start, in the order in which they are to be served."""
    turn = turn_store.first(unit.connection, host, None)
    while turn is not None:
        yield turn
        turn = turn_store.first(unit.connection, host, turn)


def served(unit: Unit, host: HostId, turn: Turn) -> None:
    """Its call was taken off the queue."""
    unit.last(f"turn:{turn.tenant}", partial(turn_store.served, host=host, turn=turn))


def passed(unit: Unit, host: HostId, turn: Turn) -> None:
    """Nothing of it may start now; what changes that says so."""
    unit.last(f"turn:{turn.tenant}", partial(turn_store.passed, host=host, turn=turn))


def take_up(unit: Unit, host: HostId) -> None:
    """Let go what a version without turns left behind."""
    for session in turn_store.holding(unit.connection, host):
        unit.last(f"session:{session}", partial(turn_store.let_next, session=session))
    unit.last("turn:", partial(turn_store.look_again, host=host))
