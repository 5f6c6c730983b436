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
    tool_call_id: ToolCallId
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
    tool_call_id: ToolCallId
    state: Literal["approved", "rejected"]
    by: PrincipalId
    """Who voted."""
