"""SQL for endpoints, deliveries and one-time links."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Row, Select, delete, exists, func, not_, or_, select, text, update
from sqlalchemy import insert as insert_into

from codesdk.domain.ids import DeliveryId, EndpointId, OneTimeLinkId, PrincipalId, SessionId, TenantId
from codesdk.storage.database import database_now
from codesdk.storage.schema import (
    approval_tickets,
    sessions,
    tenants,
    webhook_cursors,
    webhook_deliveries,
    webhook_endpoints,
)
from codesdk.webhooks.delivery import KEPT_ATTEMPTS, Attempt, Delivery, DeliveryState, Message
from codesdk.webhooks.endpoint import Endpoint, EndpointKind, SigningKey
from codesdk.webhooks.one_time_link import OneTimeLink

_E, _D, _C = webhook_endpoints, webhook_deliveries, webhook_cursors
_PENDING = DeliveryState.PENDING.value


class SealedKey(NamedTuple):
    """A signing secret as stored: encrypted."""

    sealed: str
    created_at: float
    retires_at: float | None


class StoredEndpoint(NamedTuple):
    """An endpoint with its sealed target and keys."""

    endpoint: Endpoint
    target: str
    keys: tuple[SealedKey, ...]


class LaggingSession(NamedTuple):
    """A session with events that have not become deliveries."""

    tenant: TenantId
    session: SessionId
    after: int | None
    """Its cursor; None if it has none yet."""


# -- endpoints ---------------------------------------------------------------------------------------------------------


def insert(connection: Connection, endpoint: Endpoint, target: str, keys: tuple[SealedKey, ...]) -> None:
    """Add an endpoint."""
    row = endpoint.model_dump(include={"id", "tenant_id", "principal_id", "description", "created_at"})
    row |= {"kind": endpoint.kind.value, "shown_target": endpoint.target, "target": target}
    connection.execute(insert_into(_E), {**row, "types": json.dumps(endpoint.types), "secrets": json.dumps([*keys])})


def find(connection: Connection, tenant: TenantId, endpoint: str) -> StoredEndpoint | None:
    """One endpoint of the tenant."""
    query = select(_E).where(_E.c.id == endpoint, _E.c.tenant_id == tenant)
    row = connection.execute(query).one_or_none()
    return _stored(row) if row else None


def listing(connection: Connection, tenant: TenantId) -> list[Endpoint]:
    """The tenant's endpoints, oldest first."""
    query = select(_E).where(_E.c.tenant_id == tenant).order_by(_E.c.created_at, _E.c.id)
    return [_stored(row).endpoint for row in connection.execute(query)]


def enabled_endpoints(connection: Connection, tenant: TenantId) -> list[Endpoint]:
    """The tenant's enabled endpoints."""
    return [endpoint for endpoint in listing(connection, tenant) if endpoint.disabled_at is None]


def remove(connection: Connection, endpoint: str) -> None:
    """Remove an endpoint and its deliveries."""
    connection.execute(delete(_D).where(_D.c.endpoint_id == endpoint))
    connection.execute(delete(_E).where(_E.c.id == endpoint))


def set_keys(connection: Connection, endpoint: str, keys: tuple[SealedKey, ...]) -> None:
    """Replace its signing keys, newest first."""
    connection.execute(update(_E).where(_E.c.id == endpoint).values(secrets=json.dumps([*keys])))


def set_disabled(connection: Connection, endpoint: str, at: float | None, reason: str | None) -> None:
    """Disable an endpoint, or enable it (`at` is None) and reset its backoff."""
    fresh = {"failures": 0, "not_before": 0.0} if at is None else {}
    connection.execute(update(_E).where(_E.c.id == endpoint).values(disabled_at=at, disabled_reason=reason, **fresh))


# -- fan-out of events ------------------------------------------------------------------------------------------------


def reset_cursors(connection: Connection, tenant: TenantId) -> None:
    """Move every session's cursor to the end of its log: events before the tenant's first endpoint are not delivered."""
    of_tenant = select(sessions.c.id, sessions.c.last_seq).where(sessions.c.tenant_id == tenant)
    connection.execute(delete(_C).where(_C.c.session_id.in_(select(of_tenant.subquery().c.id))))
    connection.execute(insert_into(_C).from_select(["session_id", "seq"], of_tenant))


def lagging_sessions(connection: Connection, each: int, *, closed: bool) -> list[LaggingSession]:
    """Sessions with new events, of tenants with enabled endpoints; at most `each` per tenant, imported sessions excluded.

    `closed`: include closed sessions, of which there may be very many.
    """
    listening = select(_E.c.tenant_id).where(_E.c.disabled_at.is_(None)).distinct()
    grown = (sessions.c.last_seq > func.coalesce(_C.c.seq, 0)) & sessions.c.imported_at.is_(None)
    query = select(sessions.c.tenant_id, sessions.c.id, _C.c.seq).outerjoin(_C, _C.c.session_id == sessions.c.id)
    query = query.where(grown) if closed else query.where(grown, sessions.c.state == "open")
    return [
        LaggingSession(TenantId(row.tenant_id), SessionId(row.id), row.seq)
        for tenant in connection.execute(listening).scalars().all()
        for row in connection.execute(query.where(sessions.c.tenant_id == tenant).limit(each))
    ]


def advance(connection: Connection, session: SessionId, before: int | None, after: int) -> bool:
    """Move the session's cursor from `before` to `after`. False: another process has moved it."""
    if before is None:
        made = "INSERT INTO webhook_cursors (session_id, seq) VALUES (:session, :seq) ON CONFLICT DO NOTHING"
        return connection.execute(text(made), {"session": session, "seq": after}).rowcount == 1
    changed = connection.execute(update(_C).where(_C.c.session_id == session, _C.c.seq == before).values(seq=after))
    return changed.rowcount == 1


def add(connection: Connection, delivery: Delivery, message: Message) -> None:
    """Add a pending delivery."""
    row = delivery.model_dump(exclude={"attempts", "state"})
    row |= {"state": delivery.state.value, "attempts": "[]", "message": message.model_dump_json()}
    connection.execute(insert_into(_D), row)


# -- leases and attempts -----------------------------------------------------------------------------------------------


def lease(connection: Connection, holder: str, now: float, until: float, most_of_tenant: int) -> StoredEndpoint | None:
    """Lease the endpoint with due deliveries that has waited longest. None: nothing is due.

    One process at a time sends to an endpoint, and at most `most_of_tenant` endpoints of a tenant are leased at once, so
    that a tenant with a large backlog does not starve the others.
    """
    chosen = _next_endpoint(now, most_of_tenant).with_for_update(skip_locked=True, of=_E)
    found = connection.execute(chosen).scalar()
    if found is None:
        return None
    taken_now = update(_E).where(_E.c.id == found, _E.c.lease_until <= now)
    if connection.execute(taken_now.values(lease_until=until, lease_holder=holder, turn_at=now)).rowcount != 1:
        return None
    return _stored(connection.execute(select(_E).where(_E.c.id == found)).one())


def is_due(connection: Connection, now: float, most_of_tenant: int) -> bool:
    """Whether `lease` would find an endpoint; takes no write lock."""
    return connection.execute(_next_endpoint(now, most_of_tenant)).first() is not None


def _next_endpoint(now: float, most_of_tenant: int) -> Select[tuple[str]]:
    other = _E.alias()
    taken = select(func.count()).where(other.c.tenant_id == _E.c.tenant_id, other.c.lease_until > now)
    due = exists().where(_D.c.endpoint_id == _E.c.id, _D.c.state == _PENDING, _D.c.due_at <= now)
    free = (_E.c.lease_until <= now) & _E.c.disabled_at.is_(None) & (_E.c.not_before <= now)
    query = select(_E.c.id).where(free, due, _tenant_is_active(), taken.scalar_subquery() < most_of_tenant)
    return query.order_by(_E.c.turn_at, _E.c.id).limit(1)


def _tenant_is_active() -> ColumnElement[bool]:
    """The endpoint's tenant is not suspended. Deliveries of a suspended tenant wait, and are sent later unless outdated."""
    return exists().where(tenants.c.id == _E.c.tenant_id, tenants.c.suspended_at.is_(None)).correlate(_E)


def renew_lease(connection: Connection, endpoint: str, holder: str, until: float) -> bool:
    """Extend a lease. False: it was lost, or the endpoint is gone, disabled, or its tenant suspended."""
    mine = update(_E).where(
        _E.c.id == endpoint, _E.c.lease_holder == holder, _E.c.disabled_at.is_(None), _tenant_is_active()
    )
    return connection.execute(mine.values(lease_until=until)).rowcount == 1


def release(connection: Connection, endpoint: str, holder: str) -> None:
    """End a lease."""
    mine = update(_E).where(_E.c.id == endpoint, _E.c.lease_holder == holder)
    connection.execute(mine.values(lease_until=0.0, lease_holder=None))


def set_failures(connection: Connection, endpoint: str, failures: int, not_before: float) -> None:
    """Set the number of consecutive failures, and the end of the backoff."""
    connection.execute(update(_E).where(_E.c.id == endpoint).values(failures=failures, not_before=not_before))


def due(connection: Connection, endpoint: str, now: float, limit: int) -> list[tuple[Delivery, Message]]:
    """Due deliveries of an endpoint, oldest first."""
    query = select(_D).where(_D.c.endpoint_id == endpoint, _D.c.state == _PENDING, _D.c.due_at <= now)
    rows = connection.execute(query.order_by(_D.c.due_at, _D.c.id).limit(limit))
    return [(_delivery(row), Message.model_validate_json(row.message)) for row in rows]


def record(connection: Connection, delivery: Delivery) -> None:
    """Store a delivery after an attempt, unless it was removed meanwhile.

    If it was replayed during the attempt it stays due, and only the attempt is added.
    """
    kept = [attempt.model_dump(mode="json", exclude_defaults=True) for attempt in delivery.attempts[-KEPT_ATTEMPTS:]]
    ours = update(_D).where(_D.c.id == delivery.id)
    connection.execute(ours.values(attempts=json.dumps(kept)))
    values = {"state": delivery.state.value, "due_at": delivery.due_at, "tries": delivery.tries}
    connection.execute(ours.where(_D.c.replays == delivery.replays).values(**values))


# -- the delivery log --------------------------------------------------------------------------------------------------


def deliveries(
    connection: Connection, endpoint: str, state: DeliveryState | None, before: str | None, limit: int
) -> list[Delivery]:
    """Deliveries of an endpoint, newest first; `before`: last id of the previous page."""
    query = select(_D).where(_D.c.endpoint_id == endpoint)
    query = query if state is None else query.where(_D.c.state == state.value)
    query = query if before is None else query.where(_D.c.id < before)
    return [_delivery(row) for row in connection.execute(query.order_by(_D.c.id.desc()).limit(limit))]


def delivery(connection: Connection, endpoint: str, id_: str) -> tuple[Delivery, Message] | None:
    """One delivery of the endpoint, with its message."""
    row = connection.execute(select(_D).where(_D.c.endpoint_id == endpoint, _D.c.id == id_)).one_or_none()
    return (_delivery(row), Message.model_validate_json(row.message)) if row else None


def requeue(connection: Connection, delivery: str, now: float, until: float) -> None:
    """Make a delivery due again, in any state."""
    values = {"state": _PENDING, "due_at": now, "until": until, "tries": 0, "replays": _D.c.replays + 1}
    connection.execute(update(_D).where(_D.c.id == delivery).values(**values))


def forget(connection: Connection, made_before: float, limit: int) -> int:
    """Remove finished deliveries created before a time; returns how many."""
    old = select(_D.c.id).where(_D.c.created_at < made_before, _D.c.state != _PENDING).limit(limit)
    return connection.execute(delete(_D).where(_D.c.id.in_(old))).rowcount


# -- one-time links ----------------------------------------------------------------------------------------------------


_LINK_ENDPOINT_ENABLED = (
    exists()
    .where(webhook_endpoints.c.id == approval_tickets.c.endpoint_id, webhook_endpoints.c.disabled_at.is_(None))
    .correlate(approval_tickets)
)
_LINK_USABLE = or_(approval_tickets.c.endpoint_id.is_(None), _LINK_ENDPOINT_ENABLED)
"""A link that was sent to an endpoint ends with it."""
_FIND_LINK = select(
    approval_tickets,
    (approval_tickets.c.expires_at <= database_now()).label("expired"),
    not_(_LINK_USABLE).label("withdrawn"),
)


def insert_link(connection: Connection, link: OneTimeLink) -> None:
    """Add a link."""
    connection.execute(insert_into(approval_tickets), link.model_dump(exclude={"expired", "withdrawn"}))


def find_link(connection: Connection, link: OneTimeLinkId) -> OneTimeLink | None:
    """The link of that id."""
    row = connection.execute(_FIND_LINK.where(approval_tickets.c.id == link)).one_or_none()
    if row is None:
        return None
    judged = {"expired": bool(row.expired), "withdrawn": bool(row.withdrawn)}
    return OneTimeLink.model_validate({**row._asdict(), **judged})


def use_link(connection: Connection, link: OneTimeLinkId) -> bool:
    """Mark the link as used. False, and nothing written: view-only, used, expired, or its endpoint is gone or disabled."""
    changed = connection.execute(
        update(approval_tickets)
        .where(
            approval_tickets.c.id == link,
            approval_tickets.c.used_at.is_(None),
            approval_tickets.c.expires_at > database_now(),
            approval_tickets.c.look_only.is_(False),
            _LINK_USABLE,
        )
        .values(used_at=database_now())
    )
    return changed.rowcount == 1


def _stored(row: Row[Any]) -> StoredEndpoint:
    keys = tuple(SealedKey(*key) for key in json.loads(row.secrets))
    endpoint = Endpoint(
        id=EndpointId(row.id),
        tenant_id=TenantId(row.tenant_id),
        kind=EndpointKind(row.kind),
        target=row.shown_target,
        types=tuple(json.loads(row.types)),
        principal_id=PrincipalId(row.principal_id) if row.principal_id else None,
        description=row.description,
        signing_keys=tuple(SigningKey(created_at=key.created_at, retires_at=key.retires_at) for key in keys),
        created_at=row.created_at,
        disabled_at=row.disabled_at,
        disabled_reason=row.disabled_reason,
        failures=row.failures,
    )
    return StoredEndpoint(endpoint, row.target, keys)


def _delivery(row: Row[Any]) -> Delivery:
    return Delivery(
        id=DeliveryId(row.id),
        endpoint_id=EndpointId(row.endpoint_id),
        tenant_id=TenantId(row.tenant_id),
        type=row.type,
        session_id=SessionId(row.session_id) if row.session_id else None,
        seq=row.seq,
        ticket_id=OneTimeLinkId(row.ticket_id) if row.ticket_id else None,
        state=DeliveryState(row.state),
        created_at=row.created_at,
        due_at=row.due_at,
        until=row.until,
        tries=row.tries,
        attempts=tuple(Attempt.model_validate(each) for each in json.loads(row.attempts)),
        replays=row.replays,
    )
