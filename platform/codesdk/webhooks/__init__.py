"""What goes out to people and programs that are not looking: signed deliveries, and tickets by which they answer."""

from codesdk.webhooks.sealing import Seal, SealBroken
from codesdk.webhooks.ticket import (
    Ticket,
    TicketElsewhere,
    TicketExpired,
    TicketInvalid,
    TicketLooksOnly,
    TicketUsed,
    TicketWithdrawn,
)
from codesdk.webhooks.tickets import TICKET_PREFIX, Tickets

__all__ = [
    "TICKET_PREFIX",
    "Seal",
    "SealBroken",
    "Ticket",
    "TicketElsewhere",
    "TicketExpired",
    "TicketInvalid",
    "TicketLooksOnly",
    "TicketUsed",
    "TicketWithdrawn",
    "Tickets",
]
