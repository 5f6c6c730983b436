"""The approval model: states, votes, demands and faults."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from codesdk.domain.decisions import ApprovalSpec, GrantOffer
from codesdk.domain.ids import ApprovalId, PrincipalId, SessionId, TenantId, ToolCallId
from codesdk.domain.model import FrozenModel
from codesdk.errors import Fault, NotPermitted


class ApprovalState(StrEnum):
    """State of an approval. A `pending` row past its `expires_at`, on the database's clock, counts as expired."""

    PENDING = "pending"
    APPROVED = "approved"
    REJECTED = "rejected"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    CONSUMED = "consumed"
    VOIDED = "voided"


class Verdict(StrEnum):
    """A vote's verdict."""

    APPROVE = "approve"
    REJECT = "reject"


class Vote(FrozenModel):
    """One principal's vote; each has at most one."""

    by: PrincipalId
    name: str
    """The principal's current name."""
    verdict: Verdict
    comment: str | None = None
    at: float
    """Seconds since the epoch, on the database's clock."""


class DemandProgress(FrozenModel):
    """Progress of one demand (`domain.decisions.Demand`): votes counted so far."""

    group: str | None = None
    """Group whose members may vote; None: any approver of the tenant."""
    quorum: int
    approved: int
    """Eligible principals who have approved."""
    escalate_at: float | None = None
    """From then on members of `escalate_to` may vote too; seconds since the epoch."""
    escalate_to: str | None = None


class Approval(FrozenModel):
    """A request for approval, bound by `digest` to exactly what would run."""

    id: ApprovalId
    tool_call_id: ToolCallId
    attempt: int
    session_id: SessionId
    tenant_id: TenantId
    state: ApprovalState
    digest: str
    shown: dict[str, Any]
    """What the approver sees: tool, input, rule, reason, classification, requester."""
    created_at: float
    expires_at: float
    """Seconds since the epoch, on the database's clock."""
    decided_at: float | None = None
    decided_by: PrincipalId | None = None
    """The principal whose vote decided it."""
    comment: str | None = None
    rules: tuple[str, ...] = ()
    """Ids of the rules that ask; empty if the default or the session's mode asks."""
    rule_hashes: dict[str, str] = {}
    """Hash of each rule."""
    not_requester: bool = False
    """The session's own principal can't vote, and neither can a program."""
    demands: tuple[DemandProgress, ...] = ()
    """All must be met; empty: one vote of any approver of the tenant."""
    votes: tuple[Vote, ...] = ()
    """Oldest first."""
    grant: GrantOffer | None = None
    """The grant that an approver may give with the vote."""


class DueEscalation(NamedTuple):
    """A demand that is due to escalate and has not been announced."""

    approval: Approval
    number: int
    to: str


class ApprovalUnknown(Fault):
    """No such approval for this tenant."""

    code = "APPROVAL_UNKNOWN"
    status = 404


class ApprovalConflict(Fault):
    """The vote is late, contradicts an earlier one, or has another digest. The outcome stands."""

    code = "APPROVAL_CONFLICT"
    status = 409


class NotAnApprover(NotPermitted):
    """The voter is an approver, but not eligible for this approval. The vote was not counted."""

    code = "NOT_AN_APPROVER"


def describe_approvers(approval: Approval) -> str:
    """Whose approval it takes, in words: `2 people of finance (or leads) and one of ops, other than the requester`."""
    wanted = [(demand.group, demand.quorum, demand.escalate_to) for demand in approval.demands]
    return _describe(wanted, not_requester=approval.not_requester)


def describe_requirement(spec: ApprovalSpec) -> str:
    """The same for a spec, before the approval exists."""
    wanted = [(one.group, one.quorum, one.escalation.to if one.escalation else None) for one in spec.demands]
    return _describe(wanted, not_requester=spec.not_requester)


def _describe(wanted: Sequence[tuple[str | None, int, str | None]], *, not_requester: bool) -> str:
    told = []
    for group, quorum, later in wanted or [(None, 1, None)]:
        if group is None:
            told.append("one approver" if quorum == 1 else f"{quorum} approvers")
        else:
            count = "one" if quorum == 1 else f"{quorum} people"
            told.append(f"{count} of {group}{f' (or {later})' if later else ''}")
    said = " and ".join(told)
    return f"{said}, other than the requester" if not_requester else said
