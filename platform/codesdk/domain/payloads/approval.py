"""Of an approval.

Ours, beyond the contract. An approval that expires or is cancelled has no `approval.decided`; the call's
`tool.call.denied` says it.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from codesdk.domain.events import EventType
from codesdk.domain.ids import ApprovalId, PrincipalId, ToolCallId
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


class ApprovalDecided(Payload):
    """A person did."""

    event_type: ClassVar[EventType] = EventType.APPROVAL_DECIDED

    approval_id: ApprovalId
    """Which one."""
    tool_call_id: ToolCallId
    """The call that waited."""
    state: Literal["approved", "rejected"]
    """What the person said."""
    by: PrincipalId
    """Who voted."""
