"""The tickets' statements. One conditional write uses a ticket."""

from __future__ import annotations

from sqlalchemy import Connection, exists, not_, or_, select, update
from sqlalchemy import insert as insert_into

from codesdk.domain.ids import OneTimeLinkId
from codesdk.storage.database import database_now
from codesdk.storage.schema import approval_tickets, webhook_endpoints
from codesdk.webhooks.one_time_link import OneTimeLink

_ENDPOINT_ENABLED = (
    exists()
    .where(webhook_endpoints.c.id == approval_tickets.c.endpoint_id, webhook_endpoints.c.disabled_at.is_(None))
    .correlate(approval_tickets)
)
_USABLE = or_(approval_tickets.c.endpoint_id.is_(None), _ENDPOINT_ENABLED)
"""The endpoint to which it went is there, where it went to one."""
_FIND = select(
    approval_tickets,
    (approval_tickets.c.expires_at <= database_now()).label("expired"),
    not_(_USABLE).label("withdrawn"),
)


def insert(connection: Connection, ticket: OneTimeLink) -> None:
    """Add it."""
    connection.execute(insert_into(approval_tickets), ticket.model_dump(exclude={"expired", "withdrawn"}))


def find(connection: Connection, ticket: OneTimeLinkId) -> OneTimeLink | None:
    """The ticket of that id."""
    row = connection.execute(_FIND.where(approval_tickets.c.id == ticket)).one_or_none()
    if row is None:
        return None
    judged = {"expired": bool(row.expired), "withdrawn": bool(row.withdrawn)}
    return OneTimeLink.model_validate({**row._asdict(), **judged})


def use(connection: Connection, ticket: OneTimeLinkId) -> bool:
    """It decides, was not used, is in time, and its endpoint is there: then it is used. False: nothing was written."""
    changed = connection.execute(
        update(approval_tickets)
        .where(
            approval_tickets.c.id == ticket,
            approval_tickets.c.used_at.is_(None),
            approval_tickets.c.expires_at > database_now(),
            approval_tickets.c.look_only.is_(False),
            _USABLE,
        )
        .values(used_at=database_now())
    )
    return changed.rowcount == 1
