"""The tickets' statements. One conditional write uses a ticket."""

from __future__ import annotations

from sqlalchemy import Connection, select, update
from sqlalchemy import insert as insert_into

from codesdk.domain.ids import TicketId
from codesdk.storage.database import database_now
from codesdk.storage.schema import approval_tickets
from codesdk.webhooks.ticket import Ticket

_FIND = select(approval_tickets, (approval_tickets.c.expires_at <= database_now()).label("expired"))


def insert(connection: Connection, ticket: Ticket) -> None:
    """Add it."""
    connection.execute(insert_into(approval_tickets), ticket.model_dump(exclude={"expired"}))


def find(connection: Connection, ticket: TicketId) -> Ticket | None:
    """The ticket of that id."""
    row = connection.execute(_FIND.where(approval_tickets.c.id == ticket)).one_or_none()
    return Ticket.model_validate({**row._asdict(), "expired": bool(row.expired)}) if row else None


def use(connection: Connection, ticket: TicketId) -> bool:
    """Not used and in time: then it is used. False: nothing was written."""
    changed = connection.execute(
        update(approval_tickets)
        .where(
            approval_tickets.c.id == ticket,
            approval_tickets.c.used_at.is_(None),
            approval_tickets.c.expires_at > database_now(),
        )
        .values(used_at=database_now())
    )
    return changed.rowcount == 1
