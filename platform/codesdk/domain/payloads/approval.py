"""Of an approval.

Ours, beyond the contract. Each vote is a `tool.call.policy_evaluated` with source `user`. An approval that is cancelled
has no event of its own; the call's `tool.call.denied` says it.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from codesdk.domain.decisions import Demand, GroupName
from codesdk.domain.events import EventType
from codesdk.domain.ids import ApprovalId, GrantId, PrincipalId, SandboxId, ToolCallId
from codesdk.domain.payloads.payload import Payload


class ApprovalRequested(Payload):
    """A person must decide."""

    event_type: ClassVar[EventType] = EventType.APPROVAL_REQUESTED

    approval_id: ApprovalId
    """What a vote names."""
    tool_call_id: ToolCallId
    """The call that waits."""
    digest: str
    """`sha256:` over everything that a yes would bind; a vote names it."""
    reason: str
    """Why policy asks."""
    expires_at: float
    """Seconds since the epoch, on the database's clock."""
    demands: tuple[Demand, ...] | None = None
    """Whose yes it takes, where that is not just anybody's who may approve."""
    not_requester: bool | None = None
    """True where the session's own principal may not answer."""


class ApprovalPreviewStarted(Payload):
    """A worker tries the call in a throw-away copy of the workspace, before anybody is asked about it."""

    event_type: ClassVar[EventType] = EventType.APPROVAL_PREVIEW_STARTED

    approval_id: ApprovalId
    """The approval that will be asked for."""
    tool_call_id: ToolCallId
    """The call that waits."""
    sandbox_id: SandboxId
    """The copy's own sandbox: without network, without secrets, gone when the call has been tried."""
    number: int
    """1, or 2 where the first was lost."""


class ApprovalPreviewed(Payload):
    """The call was tried; `approval.requested` follows directly. What it did stands in the approval's `shown.preview`."""

    event_type: ClassVar[EventType] = EventType.APPROVAL_PREVIEWED

    approval_id: ApprovalId
    """The approval that is asked for."""
    tool_call_id: ToolCallId
    """The call that waits."""
    preview_hash: str
    """`sha256:` of what is shown of it; the approval's digest covers it."""
    failed: str | None = None
    """Why there is no preview; people are asked all the same, and see this."""
    is_error: bool | None = None
    """Whether the call failed in the copy."""
    exit_code: int | None = None
    """Of a command."""
    changes: int | None = None
    """Paths of the workspace that it added, modified or deleted there."""


class ApprovalEscalated(Payload):
    """Nobody has answered for so long that others may."""

    event_type: ClassVar[EventType] = EventType.APPROVAL_ESCALATED

    approval_id: ApprovalId
    """Which one."""
    tool_call_id: ToolCallId
    """The call that waits."""
    to: GroupName
    """The group whose members may answer too, from now on."""


class ApprovalDecided(Payload):
    """A person did, or the last of several."""

    event_type: ClassVar[EventType] = EventType.APPROVAL_DECIDED

    approval_id: ApprovalId
    """Which one."""
    tool_call_id: ToolCallId
    """The call that waited."""
    state: Literal["approved", "rejected"]
    """What the person said."""
    by: PrincipalId
    """Whose vote decided it."""
    grant_id: GrantId | None = None
    """The grant that they gave with it."""


class ApprovalExpired(Payload):
    """Nobody did in time; the call's `tool.call.denied` follows."""

    event_type: ClassVar[EventType] = EventType.APPROVAL_EXPIRED

    approval_id: ApprovalId
    """Which one."""
    tool_call_id: ToolCallId
    """The call that waited."""
