"""A ticket: what its token stands for, and why one does not open anything."""

from __future__ import annotations

from codesdk.domain.ids import ApprovalId, EndpointId, OneTimeLinkId, PrincipalId, SessionId, TenantId
from codesdk.domain.model import FrozenModel
from codesdk.errors import ExitCode, Fault


class OneTimeLink(FrozenModel):
    """What a token stands for."""

    id: OneTimeLinkId
    tenant_id: TenantId
    session_id: SessionId
    approval_id: ApprovalId
    principal_id: PrincipalId
    """As whom it answers: the approver of record."""
    digest: str
    """Of exactly what would run."""
    expires_at: float
    """Seconds since the epoch, on the database's clock."""
    endpoint_id: EndpointId | None = None
    """To which it went: removed or disabled, it takes its tickets along."""
    look_only: bool = False
    """Its page shows the approval, and it answers nothing: who decides there does so by a key of their own."""
    used_at: float | None = None
    expired: bool = False
    """As of the reading, on the database's clock."""
    withdrawn: bool = False
    """As of the reading: its endpoint is removed or disabled."""


class LinkInvalid(Fault):
    """No ticket of this installation: badly formed, wrongly signed, or its approval was removed."""

    code = "TICKET_INVALID"
    status = 401
    exit_code = ExitCode.NO_PERMISSION


class LinkExpired(Fault):
    """Its approval's time is over."""

    code = "TICKET_EXPIRED"
    status = 403
    exit_code = ExitCode.NO_PERMISSION


class LinkUsed(Fault):
    """It has answered; a ticket answers once."""

    code = "TICKET_USED"
    status = 409


class LinkWithdrawn(Fault):
    """The endpoint to which it went was removed, or is disabled."""

    code = "TICKET_WITHDRAWN"
    status = 403
    exit_code = ExitCode.NO_PERMISSION


class LinkViewOnly(Fault):
    """It went to somebody who is not trusted to decide: it only shows."""

    code = "TICKET_LOOKS_ONLY"
    status = 403
    exit_code = ExitCode.NO_PERMISSION


class LinkMismatch(Fault):
    """It is for another approval, or for other content than the vote names."""

    code = "TICKET_ELSEWHERE"
    status = 403
    exit_code = ExitCode.NO_PERMISSION
