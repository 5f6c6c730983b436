"""The state machine of a tool call attempt (contract 001, task state machine + DESIGN section 4). Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import Field

from codesdk.domain.ids import ToolCallId
from codesdk.domain.model import FrozenModel
from codesdk.errors import InternalFault


class CallState(StrEnum):
    """The state of an attempt."""

    WAITING = "waiting_for_tool_decision"
    QUEUED = "queued"
    RUNNING = "running_tool"
    FEEDING = "feeding_tool_result"
    """The outcome is decided and on its way to the runtime. MCP calls skip this state, because their client takes the
    answer.
    """
    COMPLETED = "completed"
    DENIED = "denied"

    @property
    def terminal(self) -> bool:
        """Whether the state is final."""
        return self in (CallState.COMPLETED, CallState.DENIED)


TRANSITIONS: dict[CallState, frozenset[CallState]] = {
    CallState.WAITING: frozenset({CallState.QUEUED, CallState.FEEDING, CallState.DENIED}),
    CallState.QUEUED: frozenset({CallState.RUNNING, CallState.FEEDING, CallState.DENIED}),
    CallState.RUNNING: frozenset({CallState.FEEDING, CallState.COMPLETED}),
    CallState.FEEDING: frozenset({CallState.COMPLETED, CallState.DENIED}),
    CallState.COMPLETED: frozenset(),
    CallState.DENIED: frozenset(),
}


class IllegalTransition(InternalFault):
    """The state machine has no such transition. Nothing was written."""

    code = "ILLEGAL_TRANSITION"


def check_transition(before: CallState, after: CallState) -> None:
    """Check that the transition is allowed.

    Raises:
        IllegalTransition: with both states.
    """
    if after not in TRANSITIONS[before]:
        raise IllegalTransition(f"A tool call cannot go from {before} to {after}.")


class Attempt(FrozenModel):
    """The state of one attempt. Also remembers whether the tool ran, which `feeding_tool_result` alone doesn't tell."""

    state: CallState = CallState.WAITING
    ran: bool = False

    def transition(self, after: CallState) -> Attempt:
        """Return the attempt after the transition.

        Raises:
            IllegalTransition: with both states. A result that is fed ends as completed, a denial as denied.
        """
        check_transition(self.state, after)
        if self.state is CallState.FEEDING and self.ran is not (after is CallState.COMPLETED):
            raise IllegalTransition(
                f"A tool call that {'ran' if self.ran else 'did not run'} cannot go from {self.state} to {after}."
            )
        return Attempt(state=after, ran=self.ran or after is CallState.RUNNING)


class DenialCode(StrEnum):
    """Why a call did not run. Each code gives the agent a different message."""

    POLICY = "DENIED_BY_POLICY"
    """Denied by a rule, by the default, or by a policy that changed before the run."""
    REJECTED = "REJECTED_BY_APPROVER"
    """A person rejected the approval."""
    EXPIRED = "APPROVAL_EXPIRED"
    """Nobody answered the approval in time."""
    CANCELLED = "CANCELLED"
    """Cancelled by its client or over HTTP."""
    VOIDED = "APPROVAL_VOIDED"
    """What would run is no longer what was approved, or the tool is gone."""
    QUEUE_FULL = "QUEUE_FULL"
    """The tenant's limit of waiting calls is reached. The message has the time to retry."""
    SESSION_CLOSED = "SESSION_CLOSED"
    """The session was closed before the call started."""
    SUSPENDED = "SUSPENDED"
    """The tenant was suspended, or the principal disabled, before the call started."""
    RATE_LIMITED = "RATE_LIMITED"
    """A rule's rate limit is reached. The message has the time to retry."""
    TOO_MANY_QUESTIONS = "TOO_MANY_QUESTIONS"
    """It needs approval, but its session or tenant has reached its limit of approval requests."""
    NOT_IN_PROFILE = "NOT_IN_PROFILE"
    """The session's profile has no background processes."""
    LOG_QUOTA_EXCEEDED = "LOG_QUOTA_EXCEEDED"
    """The tenant's limit of bytes in logs and calls is reached. The call was not recorded."""
    LOG_RATE_EXCEEDED = "LOG_RATE_EXCEEDED"
    """The session's log and calls grow faster than they may. The message has the time to retry."""
    NO_APPROVER = "NO_APPROVER"
    """It needs approval, but the tenant has fewer people who may approve than the rule requires."""


class CallIdentity(FrozenModel):
    """Identifies an attempt; part of every event of the call (contract 000, `ToolCallIdentity`)."""

    tool_call_id: ToolCallId
    """Our id of the call, the same for all attempts."""
    runtime_tool_call_id: str | None = None
    """The runtime's or client's own id of the call."""
    attempt: int = Field(default=1, ge=1)
    """Starts at 1; increases with each retry, replay or resume."""
    input_hash: str
    """`sha256:<hex>` of the canonical input."""


class ToolCall(FrozenModel):
    """One request to run a tool."""

    identity: CallIdentity
    name: str
    """Dotted name."""
    input: dict[str, Any]
