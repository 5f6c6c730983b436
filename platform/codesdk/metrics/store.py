"""SQL for metrics. Each statement reads only open rows through an index, never a whole table.

Most rows of every table have ended, and their number grows. So each statement starts from the few hosts, tenants or
endpoints and counts the open rows of each in a correlated subquery, which no planner turns into a scan.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Integer, ScalarSelect, Select, bindparam, case, cast, func, select

from codesdk.approvals import ApprovalState
from codesdk.domain.calls import CallState
from codesdk.domain.ids import HostId
from codesdk.sandbox.records.store import SandboxState
from codesdk.storage.expressions import database_now, in_list
from codesdk.storage.schema import (
    approvals,
    audit_heads,
    sandboxes,
    sessions,
    tenants,
    tool_calls,
    webhook_deliveries,
    webhook_endpoints,
)
from codesdk.webhooks.delivery import DeliveryState

LIVE_STATES = tuple(state for state in SandboxState if state is not SandboxState.GONE)


class Backlog(NamedTuple):
    """Open items and the age of the oldest in seconds; 0 if there are none."""

    number: int
    oldest_s: float


class HostCalls(NamedTuple):
    """The calls of one host that have not ended."""

    waiting: int
    """For an approval, or for the fingerprints taken before it is requested."""
    held: Backlog
    """Queued behind another call of their session."""
    queued: Backlog
    """Waiting only for capacity."""
    running: Backlog


class InstallationTotals(NamedTuple):
    """Totals of the installation."""

    sessions: int
    approvals: Backlog
    deliveries: Backlog
    audit_entries: int


_CALLS = (tool_calls.c.host_id == bindparam("host")) & (tool_calls.c.state == bindparam("state"))
# Both read only the index ix_tool_calls_next.
_WAITING = select(func.count()).select_from(tool_calls).where(_CALLS)
_QUEUED = select(
    func.count().label("calls"),
    func.coalesce(func.sum(cast(tool_calls.c.held, Integer)), 0).label("held"),
    (database_now() - func.min(case((tool_calls.c.held, tool_calls.c.queued_at)))).label("held_s"),
    (database_now() - func.min(case((~tool_calls.c.held, tool_calls.c.queued_at)))).label("queued_s"),
).where(_CALLS)
# Reads the rows: there are never more than a host runs at once.
_RUNNING = select(func.count(), (database_now() - func.min(tool_calls.c.started_at))).where(_CALLS)
_SANDBOXES = (
    select(sandboxes.c.state, func.count().label("sandboxes"))
    .where(sandboxes.c.host_id == bindparam("host"), in_list(sandboxes.c.state, LIVE_STATES))
    .group_by(sandboxes.c.state)
)
_AUDIT = select(func.coalesce(func.sum(audit_heads.c.number), 0))


def _scalar_subquery(value: ColumnElement[Any], *where: ColumnElement[bool]) -> ScalarSelect[Any]:
    """A subquery for each row of tenants, or of endpoints."""
    return select(value).where(*where).correlate(tenants, webhook_endpoints).scalar_subquery()


_OPEN_OF_TENANT = (approvals.c.tenant_id == tenants.c.id, approvals.c.state == ApprovalState.PENDING.value)
_OF_TENANTS = (
    select(
        _scalar_subquery(func.count(), sessions.c.tenant_id == tenants.c.id, sessions.c.state == "open").label(
            "sessions"
        ),
        _scalar_subquery(func.count(), *_OPEN_OF_TENANT).label("approvals"),
        _scalar_subquery(func.min(approvals.c.created_at), *_OPEN_OF_TENANT).label("oldest"),
    )
    .select_from(tenants)
    .subquery()
)
_ENABLED_TENANT = (
    select(tenants.c.id).where(tenants.c.id == webhook_endpoints.c.tenant_id, tenants.c.suspended_at.is_(None)).exists()
)
_DUE = (
    webhook_deliveries.c.endpoint_id == webhook_endpoints.c.id,
    webhook_deliveries.c.state == DeliveryState.PENDING.value,
    webhook_deliveries.c.due_at <= database_now(),
)
_OF_ENDPOINTS = (
    select(
        _scalar_subquery(func.count(), *_DUE).label("deliveries"),
        _scalar_subquery(func.min(webhook_deliveries.c.due_at), *_DUE).label("oldest"),
    )
    .where(webhook_endpoints.c.disabled_at.is_(None), _ENABLED_TENANT)
    .subquery()
)


def _summed(found: Any, *counts: str) -> Select[Any]:
    sums = [func.coalesce(func.sum(found.c[name]), 0).label(name) for name in counts]
    return select(*sums, (database_now() - func.min(found.c.oldest)).label("oldest_s"))


_TENANTS = _summed(_OF_TENANTS, "sessions", "approvals")
_ENDPOINTS = _summed(_OF_ENDPOINTS, "deliveries")


def calls_of(connection: Connection, host: HostId) -> HostCalls:
    """Open calls of a host."""

    def ask(query: Select[*tuple[Any, ...]], state: CallState) -> Any:
        return connection.execute(query, {"host": host, "state": state.value}).one()

    queued, running = ask(_QUEUED, CallState.QUEUED), ask(_RUNNING, CallState.RUNNING)
    return HostCalls(
        waiting=int(ask(_WAITING, CallState.WAITING)[0]),
        held=_open(queued.held, queued.held_s),
        queued=_open(queued.calls - queued.held, queued.queued_s),
        running=_open(*running),
    )


def sandboxes_of(connection: Connection, host: HostId) -> dict[SandboxState, int]:
    """Sandboxes of a host by state, without those gone."""
    found = {row.state: row.sandboxes for row in connection.execute(_SANDBOXES, {"host": host})}
    return {state: int(found.get(state.value, 0)) for state in LIVE_STATES}


def installation(connection: Connection) -> InstallationTotals:
    """Open items of all tenants."""
    of_tenants, of_endpoints = connection.execute(_TENANTS).one(), connection.execute(_ENDPOINTS).one()
    return InstallationTotals(
        sessions=int(of_tenants.sessions),
        approvals=_open(of_tenants.approvals, of_tenants.oldest_s),
        deliveries=_open(of_endpoints.deliveries, of_endpoints.oldest_s),
        audit_entries=int(connection.execute(_AUDIT).scalar_one()),
    )


def _open(count: int, oldest_s: float | None) -> Backlog:
    return Backlog(int(count), max(0.0, float(oldest_s or 0.0)))
