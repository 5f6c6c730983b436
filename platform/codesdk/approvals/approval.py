"""An approval's record, its states, its votes and its faults."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from codesdk.domain.decisions import ApprovalSpec, GrantOffer
from codesdk.domain.ids import ApprovalId, PrincipalId, SessionId, TenantId, ToolCallId
from codesdk.domain.model import FrozenModel
from codesdk.errors import ExitCode, Fault


class ApprovalState(StrEnum):
    """`pending` is judged with `expires_at` on the database's clock: past it, it is expired whatever the row says."""

    PENDING = "pending"
    APPROVED = "approved"
    REJECTED = "rejected"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    CONSUMED = "consumed"
    VOIDED = "voided"


class Verdict(StrEnum):
    """What an approver may say."""

    APPROVE = "approve"
    REJECT = "reject"


class Vote(FrozenModel):
    """One principal's answer; there is one of each."""

    by: PrincipalId
    name: str
    """What that principal is called now."""
    verdict: Verdict
    comment: str | None = None
    at: float
    """Seconds since the epoch, on the database's clock."""


class DemandProgress(FrozenModel):
    """One demand of an approval, and how far it is met (`domain.decisions.Demand`)."""

    group: str | None = None
    """Whose members may answer; none: whoever may approve in the tenant."""
    quorum: int
    approved: int
    """Different principals who have said yes and may."""
    escalate_at: float | None = None
    """From then on the members of `escalate_to` may answer too; seconds since the epoch."""
    escalate_to: str | None = None


class Approval(FrozenModel):
    """A question to people, bound by `digest` to exactly what would run."""

    id: ApprovalId
    tool_call_id: ToolCallId
    attempt: int
    session_id: SessionId
    tenant_id: TenantId
    state: ApprovalState
    digest: str
    shown: dict[str, Any]
    """What the approver sees: tool, input, rule, reason, classification, who asks."""
    created_at: float
    expires_at: float
    """Seconds since the epoch, on the database's clock."""
    decided_at: float | None = None
    decided_by: PrincipalId | None = None
    """Whose vote decided it."""
    comment: str | None = None
    rules: tuple[str, ...] = ()
    """Ids of the rules that ask; none where the default or the session's mode does."""
    rule_hashes: dict[str, str] = {}
    """What each of them said."""
    not_requester: bool = False
    """The session's own principal may not answer, nor may a program."""
    demands: tuple[DemandProgress, ...] = ()
    """All must be met; none: one yes of anybody who may approve in the tenant."""
    votes: tuple[Vote, ...] = ()
    """In the order in which they came."""
    grant: GrantOffer | None = None
    """What a vote may give beyond this call."""


class DueEscalation(NamedTuple):
    """A demand whose time to escalate has come, and nobody has told so."""

    approval: Approval
    number: int
    to: str


class ApprovalUnknown(Fault):
    """No such approval for this tenant."""

    code = "APPROVAL_UNKNOWN"
    status = 404


class ApprovalConflict(Fault):
    """The vote came late, second, or about something else; the outcome stands."""

    code = "APPROVAL_CONFLICT"
    status = 409


class NotAnApprover(Fault):
    """The voter may approve things, and not this; nothing was counted."""

    code = "NOT_AN_APPROVER"
    status = 403
    exit_code = ExitCode.NO_PERMISSION


def describe_approvers(approval: Approval) -> str:
    """Whose yes it takes, in words: `2 people of finance (or leads) and one of ops, other than who asks`."""
    wanted = [(demand.group, demand.quorum, demand.escalate_to) for demand in approval.demands]
    return _describe(wanted, not_requester=approval.not_requester)


def describe_requirement(spec: ApprovalSpec) -> str:
    """The same, before anybody is asked."""
    wanted = [(one.group, one.quorum, one.escalation.to if one.escalation else None) for one in spec.demands]
    return _describe(wanted, not_requester=spec.not_requester)


def _describe(wanted: Sequence[tuple[str | None, int, str | None]], *, not_requester: bool) -> str:
    told = []
    for group, quorum, later in wanted or [(None, 1, None)]:
        if group is None:
            told.append("a person who may approve" if quorum == 1 else f"{quorum} people who may approve")
        else:
            count = "one" if quorum == 1 else f"{quorum} people"
            told.append(f"{count} of {group}{f' (or {later})' if later else ''}")
    said = " and ".join(told)
    return f"{said}, other than who asks" if not_requester else said
