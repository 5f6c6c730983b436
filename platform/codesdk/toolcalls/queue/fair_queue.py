"""Who is served next on a host: one tenant after the other, and of a session no more than may run at once."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from codesdk.domain.ids import HostId, SessionId, TenantId
from codesdk.storage.writer import Unit
from codesdk.toolcalls.queue import fair_queue_store
from codesdk.toolcalls.queue.fair_queue_store import QueuePosition

# Everything here that writes is a last step, sessions before turns: the steps of one group of units run in the order of
# their keys, so no two processes wait for one another, and a session's held calls are let go under its counter's lock.


def enqueue(unit: Unit, session: SessionId, host: HostId, tenant: TenantId) -> None:
    """A call was added to the queue, held: let it go if it may run now, and have its tenant served."""
    unit.at_end(f"session:{session}", partial(fair_queue_store.release_next, session=session))
    unit.at_end(f"turn:{tenant}", partial(fair_queue_store.mark_tenant_waiting, host=host, tenant=tenant))


def release(unit: Unit, session: SessionId, tenant: TenantId) -> None:
    """A call that ran, or might have, has ended: another one may start."""
    unit.at_end(f"session:{session}", partial(fair_queue_store.release_next, session=session))
    unit.at_end(f"turn:{tenant}", partial(fair_queue_store.tenant_freed, tenant=tenant))


def tenants_in_order(unit: Unit, host: HostId) -> Iterator[QueuePosition]:
    """The tenants that may have a call to start, in the order in which they are to be served."""
    turn = fair_queue_store.next_tenant(unit.connection, host, None)
    while turn is not None:
        yield turn
        turn = fair_queue_store.next_tenant(unit.connection, host, turn)


def mark_served(unit: Unit, host: HostId, turn: QueuePosition) -> None:
    """Its call was taken off the queue."""
    unit.at_end(f"turn:{turn.tenant}", partial(fair_queue_store.mark_served, host=host, turn=turn))


def mark_skipped(unit: Unit, host: HostId, turn: QueuePosition) -> None:
    """Nothing of it may start now; what changes that says so."""
    unit.at_end(f"turn:{turn.tenant}", partial(fair_queue_store.mark_skipped, host=host, turn=turn))


def release_legacy_holds(unit: Unit, host: HostId) -> None:
    """Let go what a version without turns left behind."""
    for session in fair_queue_store.sessions_with_held_calls(unit.connection, host):
        unit.at_end(f"session:{session}", partial(fair_queue_store.release_next, session=session))
    unit.at_end("turn:", partial(fair_queue_store.rescan, host=host))
