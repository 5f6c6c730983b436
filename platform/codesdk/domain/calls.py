"""The state machine of a tool call attempt (contract 001, task state machine + DESIGN section 4). Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import Field

from codesdk.domain.ids import ToolCallId
from codesdk.domain.model import FrozenModel
from codesdk.errors import InternalFault


class CallState(StrEnum):
    """Where an attempt stands."""

    WAITING = "waiting_for_tool_decision"
    QUEUED = "queued"
    RUNNING = "running_tool"
    FEEDING = "feeding_tool_result"
    """The end is decided and on its way to the runtime. A call over MCP skips it: its client takes the answer itself."""
    COMPLETED = "completed"
    DENIED = "denied"

    @property
    def terminal(self) -> bool:
        """Nothing can follow."""
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
    """A step that the state machine does not have; nothing was written."""

    code = "ILLEGAL_TRANSITION"


def check_transition(before: CallState, after: CallState) -> None:
    """Let a lawful step pass.

    Raises:
        IllegalTransition: names both states.
    """
    if after not in TRANSITIONS[before]:
        raise IllegalTransition(f"A tool call cannot go from {before} to {after}.")


class Attempt(FrozenModel):
    """One attempt's way through the states. It remembers what `feeding_tool_result` alone does not: whether the tool ran."""

    state: CallState = CallState.WAITING
    ran: bool = False

    def transition(self, after: CallState) -> Attempt:
        """The attempt one lawful step later.

        Raises:
            IllegalTransition: names both states; a result that is fed ends as completed, a denial as denied.
        """
        check_transition(self.state, after)
        if self.state is CallState.FEEDING and self.ran is not (after is CallState.COMPLETED):
            raise IllegalTransition(
                f"A tool call that {'ran' if self.ran else 'did not run'} cannot go from {self.state} to {after}."
            )
        return Attempt(state=after, ran=self.ran or after is CallState.RUNNING)


class DenialCode(StrEnum):
    """Why a call did not run; each is a different message to the agent."""

    POLICY = "DENIED_BY_POLICY"
    """A rule, the default, or a policy that has changed before the run."""
    REJECTED = "REJECTED_BY_APPROVER"
    """A person said no."""
    EXPIRED = "APPROVAL_EXPIRED"
    """Nobody answered in time."""
    CANCELLED = "CANCELLED"
    """By its client, or over HTTP."""
    VOIDED = "APPROVAL_VOIDED"
    """What was approved is not what would run now, or the tool is gone."""
    QUEUE_FULL = "QUEUE_FULL"
    """As many of its tenant's calls wait as may; the message says when to try again."""
    SESSION_CLOSED = "SESSION_CLOSED"
    """The session ended first."""
    SUSPENDED = "SUSPENDED"
    """Its tenant was suspended, or its principal disabled, before it started."""
    RATE_LIMITED = "RATE_LIMITED"
    """A rule lets only so many such calls through in a time; the message says when to try again."""
    TOO_MANY_QUESTIONS = "TOO_MANY_QUESTIONS"
    """It asks, and its session or tenant has asked too often in the last minute, or too much of it waits; nobody was asked."""
    NO_APPROVER = "NO_APPROVER"
    """It asks, and there are not as many people as the rule wants a yes of."""


class CallIdentity(FrozenModel):
    """Contract 000, `ToolCallIdentity`: stands in every event of the call."""

    tool_call_id: ToolCallId
    """Ours, stable over attempts."""
    runtime_tool_call_id: str | None = None
    """The runtime's or client's own id of the call."""
    attempt: int = Field(default=1, ge=1)
    """Starts at 1; one more for each retry, replay or resume."""
    input_hash: str
    """`sha256:<hex>` of the canonical input."""


class ToolCall(FrozenModel):
    """One request to run a tool."""

    identity: CallIdentity
    name: str
    """Dotted name."""
    input: dict[str, Any]
