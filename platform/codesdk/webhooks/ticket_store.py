"""The tickets' statements. One conditional write uses a ticket."""

from __future__ import annotations

from sqlalchemy import Connection, exists, not_, or_, select, update
from sqlalchemy import insert as insert_into

from codesdk.domain.ids import TicketId
from codesdk.storage.database import database_now
from codesdk.storage.schema import approval_tickets, webhook_endpoints
from codesdk.webhooks.ticket import Ticket

_LISTENS = (
    exists()
    .where(webhook_endpoints.c.id == approval_tickets.c.endpoint_id, webhook_endpoints.c.disabled_at.is_(None))
    .correlate(approval_tickets)
)
_OPENS = or_(approval_tickets.c.endpoint_id.is_(None), _LISTENS)
"""The endpoint to which it went is there, where it went to one."""
_FIND = select(
    approval_tickets,
    (approval_tickets.c.expires_at <= database_now()).label("expired"),
    not_(_OPENS).label("withdrawn"),
)


def insert(connection: Connection, ticket: Ticket) -> None:
    """Add it."""
    connection.execute(insert_into(approval_tickets), ticket.model_dump(exclude={"expired", "withdrawn"}))


def find(connection: Connection, ticket: TicketId) -> Ticket | None:
    """The ticket of that id."""
    row = connection.execute(_FIND.where(approval_tickets.c.id == ticket)).one_or_none()
    if row is None:
        return None
    judged = {"expired": bool(row.expired), "withdrawn": bool(row.withdrawn)}
    return Ticket.model_validate({**row._asdict(), **judged})


def use(connection: Connection, ticket: TicketId) -> bool:
    """It decides, was not used, is in time, and its endpoint is there: then it is used. False: nothing was written."""
    changed = connection.execute(
        update(approval_tickets)
        .where(
            approval_tickets.c.id == ticket,
            approval_tickets.c.used_at.is_(None),
            approval_tickets.c.expires_at > database_now(),
            approval_tickets.c.look_only.is_(False),
            _OPENS,
        )
        .values(used_at=database_now())
    )
    return changed.rowcount == 1
