"""An approval's record, its states and its faults."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from codesdk.domain.decisions import Frozen
from codesdk.domain.ids import ApprovalId, PrincipalId, SessionId, TenantId, ToolCallId
from codesdk.errors import Fault


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


class Approval(Frozen):
    """A question to a person, bound by `digest` to exactly what would run."""

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
    comment: str | None = None


class ApprovalUnknown(Fault):
    """No such approval for this tenant."""

    code = "APPROVAL_UNKNOWN"
    status = 404


class ApprovalConflict(Fault):
    """The vote came late, second, or about something else; the outcome stands."""

    code = "APPROVAL_CONFLICT"
    status = 409
