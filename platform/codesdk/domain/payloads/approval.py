"""Approval events.

Not part of the contract. Each vote is a `tool.call.policy_evaluated` with source `user`. A cancelled approval has no
event; the call's `tool.call.denied` reports it.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from codesdk.domain.decisions import Demand, GroupName
from codesdk.domain.events import EventType
from codesdk.domain.ids import ApprovalId, GrantId, PrincipalId, SandboxId, ToolCallId
from codesdk.domain.payloads.payload import Payload


class ApprovalRequested(Payload):
    """A call needs approval."""

    event_type: ClassVar[EventType] = EventType.APPROVAL_REQUESTED

    approval_id: ApprovalId
    """The approval's id, for votes."""
    tool_call_id: ToolCallId
    """The waiting call."""
    digest: str
    """`sha256:` over everything that an approval binds. Votes must name it."""
    reason: str
    """Why policy asks."""
    expires_at: float
    """Seconds since the epoch, on the database's clock."""
    demands: tuple[Demand, ...] | None = None
    """The approval requirements; missing if anyone who may approve can do so."""
    not_requester: bool | None = None
    """True if the session's own principal may not vote."""


class ApprovalPreviewStarted(Payload):
    """A worker starts a dry run of the call in a copy of the workspace, before approval is requested."""

    event_type: ClassVar[EventType] = EventType.APPROVAL_PREVIEW_STARTED

    approval_id: ApprovalId
    """The approval that will be requested."""
    tool_call_id: ToolCallId
    """The waiting call."""
    sandbox_id: SandboxId
    """The copy's own sandbox: no network, no secrets, removed after the dry run."""
    number: int
    """1, or 2 if the first dry run was lost."""


class ApprovalPreviewed(Payload):
    """The dry run ended; `approval.requested` follows. The approval's `shown.preview` has its effects."""

    event_type: ClassVar[EventType] = EventType.APPROVAL_PREVIEWED

    approval_id: ApprovalId
    """The approval that is requested."""
    tool_call_id: ToolCallId
    """The waiting call."""
    preview_hash: str
    """`sha256:` of the preview; covered by the approval's digest."""
    failed: str | None = None
    """Why there is no preview. Approval is requested anyway, and approvers see this text."""
    is_error: bool | None = None
    """Whether the call failed in the copy."""
    exit_code: int | None = None
    """The command's exit code."""
    changes: int | None = None
    """Number of workspace paths that it added, modified or deleted."""


class ApprovalEscalated(Payload):
    """Nobody answered within the delay, so further people may."""

    event_type: ClassVar[EventType] = EventType.APPROVAL_ESCALATED

    approval_id: ApprovalId
    """The approval's id."""
    tool_call_id: ToolCallId
    """The waiting call."""
    to: GroupName
    """The group whose members may vote from now on."""


class ApprovalDecided(Payload):
    """A vote decided the approval."""

    event_type: ClassVar[EventType] = EventType.APPROVAL_DECIDED

    approval_id: ApprovalId
    """The approval's id."""
    tool_call_id: ToolCallId
    """The call that was waiting."""
    state: Literal["approved", "rejected"]
    """The decision."""
    by: PrincipalId
    """The principal whose vote decided it."""
    grant_id: GrantId | None = None
    """The grant that was created with it."""


class ApprovalExpired(Payload):
    """Nobody decided in time; the call's `tool.call.denied` follows."""

    event_type: ClassVar[EventType] = EventType.APPROVAL_EXPIRED

    approval_id: ApprovalId
    """The approval's id."""
    tool_call_id: ToolCallId
    """The call that was waiting."""
