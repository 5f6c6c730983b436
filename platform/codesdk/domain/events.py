"""The event envelope and the types of contract 000; the payload models are in `domain.payloads`."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import Field

from codesdk.domain.decisions import Frozen
from codesdk.domain.ids import SessionId, TaskId

SCHEMA_VERSION = 1
"""Version of the payload shapes; a breaking change raises it and brings an upcaster."""
CONTRACT_VERSION = "1.0"
"""Version of the runtime adapter contract that a log was written for; stands in `session.created`."""


class EventType(StrEnum):
    """The contract's 19 types; ours stand only under `approval.`, `sandbox.`, `failover.` and `extension.`."""

    SESSION_CREATED = "session.created"
    TASK_STARTED = "task.started"
    MODEL_INPUT = "model.input"
    RUNTIME_REQUEST_STARTED = "runtime.request.started"
    RUNTIME_REQUEST_COMPLETED = "runtime.request.completed"
    MODEL_OUTPUT_DELTA = "model.output.delta"
    MODEL_OUTPUT_COMPLETED = "model.output.completed"
    CALL_REQUESTED = "tool.call.requested"
    CALL_POLICY_EVALUATED = "tool.call.policy_evaluated"
    CALL_APPROVED = "tool.call.approved"
    CALL_DENIED = "tool.call.denied"
    CALL_STARTED = "tool.call.started"
    OUTPUT_DELTA = "tool.output.delta"
    OUTPUT_COMPLETED = "tool.output.completed"
    CALL_COMPLETED = "tool.call.completed"
    USAGE_REPORTED = "usage.reported"
    TASK_COMPLETED = "task.completed"
    TASK_FAILED = "task.failed"
    TASK_STOPPED = "task.stopped"

    APPROVAL_REQUESTED = "approval.requested"
    APPROVAL_DECIDED = "approval.decided"
    SANDBOX_STARTED = "sandbox.started"
    SANDBOX_FAILED = "sandbox.failed"
    SANDBOX_EGRESS = "sandbox.egress"
    SANDBOX_STOPPED = "sandbox.stopped"
    SANDBOX_SESSION_CLOSED = "sandbox.session_closed"


class Trace(Frozen):
    """Whose event this is."""

    session_id: SessionId
    task_id: TaskId | None = None
    request_id: str | None = None
    client_id: str | None = None
    user_id: str | None = None


class RuntimeInfo(Frozen):
    """Which runtime the event came from or belongs to."""

    name: str
    model: str | None = None
    runtime_session_id: str | None = None
    raw: Any = None
    raw_ref: str | None = None


class Event(Frozen):
    """One entry of a session's log, as stored and as sent."""

    schema_version: int = SCHEMA_VERSION
    seq: int = Field(ge=1)
    """Dense and monotonic within the session, given in the transaction that stores the event."""
    time: str
    """RFC 3339, UTC, milliseconds."""
    type: EventType
    trace: Trace
    runtime: RuntimeInfo
    payload: dict[str, Any]
