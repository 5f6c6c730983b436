"""One-time links: the record behind a token, and the reasons a token is refused."""

from __future__ import annotations

from codesdk.domain.ids import ApprovalId, EndpointId, OneTimeLinkId, PrincipalId, SessionId, TenantId
from codesdk.domain.model import FrozenModel
from codesdk.errors import ExitCode, Fault, NotPermitted


class OneTimeLink(FrozenModel):
    """The approval, approver and bounds behind one token."""

    id: OneTimeLinkId
    tenant_id: TenantId
    session_id: SessionId
    approval_id: ApprovalId
    principal_id: PrincipalId
    """The approver of record."""
    digest: str
    """Digest of the call to approve."""
    expires_at: float
    """Seconds since the epoch, on the database's clock."""
    endpoint_id: EndpointId | None = None
    """The endpoint that received the link. Removing or disabling it invalidates the link."""
    look_only: bool = False
    """View-only: the page shows the approval, and deciding takes an API key."""
    used_at: float | None = None
    expired: bool = False
    """At the time of reading, on the database's clock."""
    withdrawn: bool = False
    """At the time of reading: the endpoint is removed or disabled."""


class LinkInvalid(Fault):
    """The token is malformed or wrongly signed, or its approval was removed."""

    code = "TICKET_INVALID"
    status = 401
    exit_code = ExitCode.NO_PERMISSION


class LinkExpired(NotPermitted):
    """The approval has expired."""

    code = "TICKET_EXPIRED"


class LinkUsed(Fault):
    """The link has been used; it works once."""

    code = "TICKET_USED"
    status = 409


class LinkWithdrawn(NotPermitted):
    """The endpoint that received the link was removed or disabled."""

    code = "TICKET_WITHDRAWN"


class LinkViewOnly(NotPermitted):
    """The link is view-only."""

    code = "TICKET_LOOKS_ONLY"


class LinkMismatch(NotPermitted):
    """The link is for another approval, or for another digest."""

    code = "TICKET_ELSEWHERE"
