"""Issues and checks one-time links: signed tokens that answer one approval once, as one principal, until it expires.

A token is the id of the link's row with a signature over its contents. It can be derived again for a repeated delivery,
so no token is stored.
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
from codesdk.webhooks.secret_encryption import SecretCipher

LINK_TOKEN_PREFIX = "csdk_tkt_"  # noqa: S105 (a prefix, no secret)
_TOKEN = re.compile(r"csdk_tkt_([0-9A-HJKMNP-TV-Z]{26})_([A-Za-z0-9_-]{43})", re.ASCII)
_PURPOSE = "approval-ticket"


class OneTimeLinkService:
    """Issues, reads and redeems links. Safe to use from any thread."""

    def __init__(self, database: Database, ids: Ids, seal: SecretCipher) -> None:
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
        """A new link. The holder of its token votes as `principal`, whose role is checked when the token is used.

        `expires_at`: expiry of the approval, seconds since the epoch on the database's clock. `endpoint`: the receiver;
        removing or disabling it invalidates the link. `look_only`: the link shows the approval but can't decide.
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
        """The link's token; the same each time."""
        signature = base64.urlsafe_b64encode(self._signature(ticket)).decode().rstrip("=")
        return f"{LINK_TOKEN_PREFIX}{ticket.id.partition('_')[2]}_{signature}"

    def page(self, ticket: OneTimeLink, base_url: str) -> str:
        """URL of the approval page. `base_url`: without a trailing slash."""
        return f"{base_url}/approve/{self.token(ticket)}"

    def find(self, ticket: OneTimeLinkId) -> OneTimeLink | None:
        """The link of that id."""
        with self._database.read() as connection:
            return store.find_link(connection, ticket)

    def read(self, token: str) -> OneTimeLink:
        """The link behind a token, whether or not it is used or expired.

        Raises:
            LinkInvalid: the message does not tell which of the reasons.
            LinkWithdrawn: its endpoint is removed or disabled.
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
        """Redeem the link, in the transaction of the vote: a refused vote leaves it unused.

        Raises:
            LinkMismatch: the vote is about another approval or digest.
            LinkViewOnly: the link can't decide.
            LinkUsed, LinkWithdrawn, LinkExpired: as of the statement that redeems it.
        """
        if ticket.look_only:
            raise LinkViewOnly(
                "This link only shows the approval.",
                advice="Decide on its page, or over the API, with your own API key.",
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
        raise LinkExpired("The approval has expired; nothing was changed.")

    def _signature(self, ticket: OneTimeLink) -> bytes:
        facts = (ticket.id, ticket.tenant_id, ticket.approval_id, ticket.principal_id, ticket.digest)
        # Only where set, so that tokens from before these fields existed keep their signature.
        bounds = [ticket.endpoint_id or "", "looks" if ticket.look_only else ""]
        return self._seal.mark(_PURPOSE, *facts, repr(ticket.expires_at), *(bounds if any(bounds) else ()))


def _withdrawn() -> LinkWithdrawn:
    return LinkWithdrawn(
        "The webhook, chat or mailbox to which this was sent is removed or disabled.",
        advice="Answer with an API key, or in the terminal (`codesdk approvals`).",
    )
