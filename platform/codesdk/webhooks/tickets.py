"""Tickets: a signed link or token that answers one approval once, as one principal, until the approval expires.

A ticket's row says everything that it stands for, and its token is the row's id with a signature over all of that. So
the same token can be made again for a repeated delivery, and no token is stored anywhere.
"""

from __future__ import annotations

import base64
import hmac
import re

from codesdk.domain.ids import ApprovalId, EndpointId, Ids, Kind, PrincipalId, SessionId, TenantId, TicketId
from codesdk.storage.database import Database
from codesdk.storage.writer import Unit
from codesdk.webhooks import ticket_store
from codesdk.webhooks.sealing import Seal
from codesdk.webhooks.ticket import (
    Ticket,
    TicketElsewhere,
    TicketExpired,
    TicketInvalid,
    TicketLooksOnly,
    TicketUsed,
    TicketWithdrawn,
)

TICKET_PREFIX = "csdk_tkt_"
_FORM = re.compile(r"csdk_tkt_([0-9A-HJKMNP-TV-Z]{26})_([A-Za-z0-9_-]{43})", re.ASCII)
_PURPOSE = "approval-ticket"


class Tickets:
    """Mints, reads and uses up tickets. Safe to use from any thread."""

    def __init__(self, database: Database, ids: Ids, seal: Seal) -> None:
        self._database = database
        self._ids = ids
        self._seal = seal

    def mint(
        self,
        unit: Unit,
        *,
        tenant: TenantId,
        session: SessionId,
        approval: ApprovalId,
        principal: PrincipalId,
        digest: str,
        expires_at: float,
        endpoint: EndpointId | None = None,
        look_only: bool = False,
    ) -> Ticket:
        """A new ticket. Whoever holds its token votes as `principal`, whose role is looked at when it is used.

        `expires_at`: of the approval, seconds since the epoch on the database's clock. `endpoint`: to which it goes, and
        with which it ends. `look_only`: it shows the approval and decides nothing.
        """
        ticket = Ticket(
            id=TicketId(self._ids.new(Kind.TICKET)),
            tenant_id=tenant,
            session_id=session,
            approval_id=approval,
            principal_id=principal,
            digest=digest,
            expires_at=expires_at,
            endpoint_id=endpoint,
            look_only=look_only,
        )
        ticket_store.insert(unit.connection, ticket)
        return ticket

    def token(self, ticket: Ticket) -> str:
        """The ticket's secret; the same each time."""
        signature = base64.urlsafe_b64encode(self._mark(ticket)).decode().rstrip("=")
        return f"{TICKET_PREFIX}{ticket.id.partition('_')[2]}_{signature}"

    def page(self, ticket: Ticket, base_url: str) -> str:
        """The link to the page where its holder sees the approval and decides. `base_url`: without a final slash."""
        return f"{base_url}/approve/{self.token(ticket)}"

    def find(self, ticket: TicketId) -> Ticket | None:
        """The ticket of that id."""
        with self._database.read() as connection:
            return ticket_store.find(connection, ticket)

    def read(self, token: str) -> Ticket:
        """What the token stands for, used or not, expired or not.

        Raises:
            TicketInvalid: which of the reasons is not told.
            TicketWithdrawn: its endpoint is gone or disabled.
        """
        form = _FORM.fullmatch(token)
        found = self.find(TicketId(f"{Kind.TICKET}_{form[1]}")) if form else None
        if found is None or not hmac.compare_digest(self.token(found), token):
            raise TicketInvalid(
                "This link or token is not valid.", advice="Use it whole, as it was sent; or vote with an API key."
            )
        if found.withdrawn:
            raise _withdrawn()
        return found

    def use(self, unit: Unit, ticket: Ticket, *, approval: str, digest: str) -> None:
        """Use it up, in the transaction of the vote: a vote that is refused leaves it as it was.

        Raises:
            TicketElsewhere: the vote is not what the ticket was given for.
            TicketLooksOnly: it decides nothing.
            TicketUsed, TicketWithdrawn, TicketExpired: judged by the database, in the statement that uses it.
        """
        if ticket.look_only:
            raise TicketLooksOnly(
                "This link only shows the approval.", advice="Decide on its page, or over the API, by your own API key."
            )
        if approval != ticket.approval_id or not hmac.compare_digest(digest, ticket.digest):
            raise TicketElsewhere(
                "This token is for another approval, or for other content than your vote names.",
                advice="Send the approval's id and digest as they came with the token.",
            )
        if ticket_store.use(unit.connection, ticket.id):
            return
        found = ticket_store.find(unit.connection, ticket.id)
        if found is not None and found.used_at is not None:
            raise TicketUsed(
                "This link or token has been used; it answers once.",
                advice="Read the approval: its outcome stands.",
                details={"used_at": found.used_at},
            )
        if found is not None and found.withdrawn:
            raise _withdrawn()
        raise TicketExpired("The time for this answer is over; nothing was changed.")

    def _mark(self, ticket: Ticket) -> bytes:
        facts = (ticket.id, ticket.tenant_id, ticket.approval_id, ticket.principal_id, ticket.digest)
        # Only where they are there: a token that was given out before there were such tickets stays what it was.
        bounds = [ticket.endpoint_id or "", "looks" if ticket.look_only else ""]
        return self._seal.mark(_PURPOSE, *facts, repr(ticket.expires_at), *(bounds if any(bounds) else ()))


def _withdrawn() -> TicketWithdrawn:
    return TicketWithdrawn(
        "The webhook, chat or mailbox to which this was sent is removed or disabled.",
        advice="Answer with an API key, or in the terminal (`codesdk approvals`).",
    )
