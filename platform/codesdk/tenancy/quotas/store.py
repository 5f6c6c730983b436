"""SQL for quotas."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from sqlalchemy import (
    BigInteger,
    Connection,
    ScalarSelect,
    Select,
    bindparam,
    case,
    cast,
    func,
    select,
    update,
)

from codesdk.domain.calls import CallState
from codesdk.domain.ids import TenantId
from codesdk.domain.quotas import EgressReservation, Resource
from codesdk.domain.sandbox_resources import Need, profile_needs, total_need
from codesdk.storage.database import database_now
from codesdk.storage.expressions import in_list
from codesdk.storage.schema import api_keys, principals, sandboxes, sessions, tenants, tool_calls

DAY_S = 24 * 3600
_NOW = select(database_now())
# On PostgreSQL, NO KEY UPDATE: others may still insert rows that reference the tenant. SQLite has one writer anyway.
_LOCK = select(tenants.c.id).where(tenants.c.id == bindparam("tenant")).with_for_update(key_share=True)
_LIMITS = select(tenants.c.limits).where(tenants.c.id == bindparam("tenant"))
_ARTIFACT_BYTES = select(tenants.c.limits, tenants.c.artifact_bytes.label("used")).where(
    tenants.c.id == bindparam("tenant")
)
_TODAY = bindparam("today", type_=BigInteger)
_EGRESS_BYTES = select(
    tenants.c.limits,
    case((tenants.c.egress_day == _TODAY, tenants.c.egress_bytes), else_=0).label("used"),
).where(tenants.c.id == bindparam("tenant"))
_ADD_EGRESS = (
    update(tenants)
    .where(tenants.c.id == bindparam("tenant"))
    .values(
        egress_bytes=case((tenants.c.egress_day == _TODAY, tenants.c.egress_bytes), else_=0)
        + bindparam("more", type_=BigInteger),
        egress_day=_TODAY,
    )
)
_SUBTRACT_EGRESS = (
    update(tenants)
    .where(
        tenants.c.id == bindparam("tenant"),
        tenants.c.egress_day == bindparam("day", type_=BigInteger),
        tenants.c.egress_bytes >= bindparam("fewer", type_=BigInteger),
    )
    .values(egress_bytes=tenants.c.egress_bytes - bindparam("fewer", type_=BigInteger))
)
_ADD_BYTES = (
    update(tenants)
    .where(
        tenants.c.id == bindparam("tenant"),
        (bindparam("most", type_=BigInteger) == 0)
        | (tenants.c.artifact_bytes + bindparam("more", type_=BigInteger) <= bindparam("most", type_=BigInteger)),
    )
    .values(artifact_bytes=tenants.c.artifact_bytes + bindparam("more", type_=BigInteger))
)
_SUBTRACT_BYTES = (
    update(tenants)
    .where(tenants.c.id == bindparam("tenant"), tenants.c.artifact_bytes >= bindparam("fewer", type_=BigInteger))
    .values(artifact_bytes=tenants.c.artifact_bytes - bindparam("fewer", type_=BigInteger))
)
_PROFILES = (
    select(sandboxes.c.profile, func.count().label("sandboxes"))
    .join(sessions, sessions.c.id == func.coalesce(sandboxes.c.session_id, sandboxes.c.serves))
    .where(sessions.c.tenant_id == bindparam("tenant"), sandboxes.c.state != "gone")
    .group_by(sandboxes.c.profile)
)


def _calls(*states: CallState) -> ScalarSelect[int]:
    return (
        select(func.count())
        .select_from(tool_calls)
        .where(tool_calls.c.tenant_id == tenants.c.id, in_list(tool_calls.c.state, states))
        .correlate(tenants)
        .scalar_subquery()
    )


_COUNTS: dict[Resource, ScalarSelect[int]] = {
    Resource.SESSIONS: (
        select(func.count())
        .select_from(sessions)
        .where(sessions.c.tenant_id == tenants.c.id, sessions.c.state == "open")
        .correlate(tenants)
        .scalar_subquery()
    ),
    Resource.QUEUED_CALLS: _calls(CallState.WAITING, CallState.QUEUED),
    Resource.RUNNING_CALLS: _calls(CallState.RUNNING),
    Resource.LOG_BYTES: (
        # Counters of the sessions' rows, which their own writers change: no row of the tenant is written for each event.
        select(cast(func.coalesce(func.sum(sessions.c.log_bytes), 0), BigInteger))
        .where(sessions.c.tenant_id == tenants.c.id)
        .correlate(tenants)
        .scalar_subquery()
    ),
    Resource.API_KEYS: (
        select(func.count())
        .select_from(api_keys.join(principals, principals.c.id == api_keys.c.principal_id))
        .where(
            principals.c.tenant_id == tenants.c.id,
            api_keys.c.revoked_at.is_(None),
            api_keys.c.expires_at.is_(None) | (api_keys.c.expires_at > database_now()),
        )
        .correlate(tenants)
        .scalar_subquery()
    ),
}
# Used for every call, so built once.
_COUNTED: dict[Resource, Select[tuple[str, int]]] = {
    resource: select(tenants.c.limits, count.label("used")).where(tenants.c.id == bindparam("tenant"))
    for resource, count in _COUNTS.items()
} | {Resource.ARTIFACT_BYTES: _ARTIFACT_BYTES, Resource.EGRESS_BYTES_A_DAY: _EGRESS_BYTES}
_PER_SANDBOX: dict[Resource, Callable[[Need], int]] = {
    Resource.SANDBOX_MEMORY_BYTES: lambda need: need.memory_bytes,
    Resource.SANDBOX_MILLICPUS: lambda need: need.millicpus,
    Resource.WORKSPACE_BYTES: lambda need: need.workspace_bytes,
}


def lock(connection: Connection, tenant: TenantId) -> None:
    """Lock the tenant: no other transaction can reserve anything of it until this one ends."""
    if connection.dialect.name != "sqlite":
        # A separate statement, so that the following count sees what the lock waited for.
        connection.execute(_LOCK, {"tenant": tenant})


def limits_and_usage(connection: Connection, tenant: TenantId, resource: Resource) -> tuple[dict[str, int], int]:
    """Return the tenant's own limits, and its usage of `resource`."""
    if resource in _PER_SANDBOX:
        limits = connection.execute(_LIMITS, {"tenant": tenant}).scalar_one()
        rows = connection.execute(_PROFILES, {"tenant": tenant})
        used = _PER_SANDBOX[resource](
            total_need((profile_needs(json.loads(row.profile)), row.sandboxes) for row in rows)
        )
        return json.loads(limits), used
    when = {"today": _today(connection)} if resource is Resource.EGRESS_BYTES_A_DAY else {}
    row = connection.execute(_COUNTED[resource], {"tenant": tenant, **when}).one()
    return json.loads(row.limits), row.used


def add_bytes(connection: Connection, tenant: TenantId, more: int, most: int) -> bool:
    """Add `more` bytes if the total stays within `most` (0: no limit). Returns False if nothing was changed."""
    changed = connection.execute(_ADD_BYTES, {"tenant": tenant, "more": more, "most": most})
    return changed.rowcount == 1


def add_egress(connection: Connection, tenant: TenantId, more: int) -> int:
    """Add `more` bytes to today's total and return today's number. Resets the total of another day."""
    today = _today(connection)
    connection.execute(_ADD_EGRESS, {"tenant": tenant, "more": more, "today": today})
    return today


def subtract_egress(connection: Connection, tenant: TenantId, taken: EgressReservation) -> None:
    """Subtract the bytes if their day is still the counted one."""
    connection.execute(_SUBTRACT_EGRESS, {"tenant": tenant, "day": taken.day, "fewer": taken.amount})


def _today(connection: Connection) -> int:
    """Return the number of days since the epoch, on the database's clock."""
    return int(connection.execute(_NOW).scalar_one() // DAY_S)


def subtract_bytes(connection: Connection, tenant: TenantId, fewer: int) -> bool:
    """Subtract `fewer` bytes. Returns False if there are fewer."""
    return connection.execute(_SUBTRACT_BYTES, {"tenant": tenant, "fewer": fewer}).rowcount == 1


def set_limits(connection: Connection, tenant: TenantId, changes: Mapping[Resource, int | None]) -> None:
    """Set the tenant's own limits. None removes one."""
    limits = json.loads(connection.execute(_LIMITS, {"tenant": tenant}).scalar_one())
    limits |= {resource.value: amount for resource, amount in changes.items()}
    kept = {name: amount for name, amount in sorted(limits.items()) if amount is not None}
    connection.execute(update(tenants).where(tenants.c.id == tenant).values(limits=json.dumps(kept)))
