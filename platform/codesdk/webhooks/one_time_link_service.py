"""Tickets: a signed link or token that answers one approval once, as one principal, until the approval expires.

A ticket's row says everything that it stands for, and its token is the row's id with a signature over all of that. So
the same token can be made again for a repeated delivery, and no token is stored anywhere.
"""

from __future__ import annotations

import base64
import hmac
import re

from codesdk.domain.ids import ApprovalId, EndpointId, IdKind, Ids, OneTimeLinkId, PrincipalId, SessionId, TenantId
from codesdk.storage.database import Database
from codesdk.storage.writer import Unit
from codesdk.webhooks import store
from codesdk.webhooks.one_time_link import (
    LinkExpired,
    LinkInvalid,
    LinkMismatch,
    LinkUsed,
    LinkViewOnly,
    LinkWithdrawn,
    OneTimeLink,
)
from codesdk.webhooks.sealing import Seal

LINK_TOKEN_PREFIX = "csdk_tkt_"  # noqa: S105 (what all of them begin with)
_TOKEN = re.compile(r"csdk_tkt_([0-9A-HJKMNP-TV-Z]{26})_([A-Za-z0-9_-]{43})", re.ASCII)
_PURPOSE = "approval-ticket"


class OneTimeLinkService:
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
    ) -> OneTimeLink:
        """A new ticket. Whoever holds its token votes as `principal`, whose role is looked at when it is used.

        `expires_at`: of the approval, seconds since the epoch on the database's clock. `endpoint`: to which it goes, and
        with which it ends. `look_only`: it shows the approval and decides nothing.
        """
        ticket = OneTimeLink(
            id=OneTimeLinkId(self._ids.new(IdKind.TICKET)),
            tenant_id=tenant,
            session_id=session,
            approval_id=approval,
            principal_id=principal,
            digest=digest,
            expires_at=expires_at,
            endpoint_id=endpoint,
            look_only=look_only,
        )
        store.insert_link(unit.connection, ticket)
        return ticket

    def token(self, ticket: OneTimeLink) -> str:
        """The ticket's secret; the same each time."""
        signature = base64.urlsafe_b64encode(self._signature(ticket)).decode().rstrip("=")
        return f"{LINK_TOKEN_PREFIX}{ticket.id.partition('_')[2]}_{signature}"

    def page(self, ticket: OneTimeLink, base_url: str) -> str:
        """The link to the page where its holder sees the approval and decides. `base_url`: without a final slash."""
        return f"{base_url}/approve/{self.token(ticket)}"

    def find(self, ticket: OneTimeLinkId) -> OneTimeLink | None:
        """The ticket of that id."""
        with self._database.read() as connection:
            return store.find_link(connection, ticket)

    def read(self, token: str) -> OneTimeLink:
        """What the token stands for, used or not, expired or not.

        Raises:
            TicketInvalid: which of the reasons is not told.
            TicketWithdrawn: its endpoint is gone or disabled.
        """
        form = _TOKEN.fullmatch(token)
        found = self.find(OneTimeLinkId(f"{IdKind.TICKET}_{form[1]}")) if form else None
        if found is None or not hmac.compare_digest(self.token(found), token):
            raise LinkInvalid(
                "This link or token is not valid.", advice="Use it whole, as it was sent; or vote with an API key."
            )
        if found.withdrawn:
            raise _withdrawn()
        return found

    def use(self, unit: Unit, ticket: OneTimeLink, *, approval: str, digest: str) -> None:
        """Use it up, in the transaction of the vote: a vote that is refused leaves it as it was.

        Raises:
            TicketElsewhere: the vote is not what the ticket was given for.
            TicketLooksOnly: it decides nothing.
            TicketUsed, TicketWithdrawn, TicketExpired: judged by the database, in the statement that uses it.
        """
        if ticket.look_only:
            raise LinkViewOnly(
                "This link only shows the approval.", advice="Decide on its page, or over the API, by your own API key."
            )
        if approval != ticket.approval_id or not hmac.compare_digest(digest, ticket.digest):
            raise LinkMismatch(
                "This token is for another approval, or for other content than your vote names.",
                advice="Send the approval's id and digest as they came with the token.",
            )
        if store.use_link(unit.connection, ticket.id):
            return
        found = store.find_link(unit.connection, ticket.id)
        if found is not None and found.used_at is not None:
            raise LinkUsed(
                "This link or token has been used; it answers once.",
                advice="Read the approval: its outcome stands.",
                details={"used_at": found.used_at},
            )
        if found is not None and found.withdrawn:
            raise _withdrawn()
        raise LinkExpired("The time for this answer is over; nothing was changed.")

    def _signature(self, ticket: OneTimeLink) -> bytes:
        facts = (ticket.id, ticket.tenant_id, ticket.approval_id, ticket.principal_id, ticket.digest)
        # Only where they are there: a token that was given out before there were such tickets stays what it was.
        bounds = [ticket.endpoint_id or "", "looks" if ticket.look_only else ""]
        return self._seal.mark(_PURPOSE, *facts, repr(ticket.expires_at), *(bounds if any(bounds) else ()))


def _withdrawn() -> LinkWithdrawn:
    return LinkWithdrawn(
        "The webhook, chat or mailbox to which this was sent is removed or disabled.",
        advice="Answer with an API key, or in the terminal (`codesdk approvals`).",
    )
