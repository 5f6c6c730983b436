"""The event envelope and the types of contract 000; the payload models are in `domain.payloads`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field

from codesdk.domain.artifact_refs import ArtifactRef
from codesdk.domain.ids import SessionId, TaskId
from codesdk.domain.model import FrozenModel
from codesdk.errors import ExitCode, Fault

SCHEMA_VERSION = 1
"""Version of the payload's shape. A breaking change raises it and adds an upcaster."""
CONTRACT_VERSION = "1.0"
"""Version of the runtime adapter contract of new logs; recorded in `session.created`."""


class EventType(StrEnum):
    """The contract's 19 types, and our own under `approval.`, `sandbox.`, `failover.` and `extension.`."""

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
    APPROVAL_PREVIEW_STARTED = "approval.preview_started"
    APPROVAL_PREVIEWED = "approval.previewed"
    APPROVAL_ESCALATED = "approval.escalated"
    APPROVAL_DECIDED = "approval.decided"
    APPROVAL_EXPIRED = "approval.expired"
    SANDBOX_STARTED = "sandbox.started"
    SANDBOX_FAILED = "sandbox.failed"
    SANDBOX_EGRESS = "sandbox.egress"
    SANDBOX_FILES_CHANGED = "sandbox.files_changed"
    SANDBOX_HALTED = "sandbox.halted"
    SANDBOX_SNAPSHOT_TAKEN = "sandbox.snapshot_taken"
    SANDBOX_SNAPSHOT_RESTORED = "sandbox.snapshot_restored"
    SANDBOX_STOPPED = "sandbox.stopped"
    SANDBOX_SESSION_CLOSED = "sandbox.session_closed"


OPTIONAL_TYPE_PATTERN = r"^(approval|sandbox|failover|extension)\.[a-z0-9_]+(\.[a-z0-9_]+)*$"
"""Pattern of the types that a client may ignore: our own, of this or a later version."""
OptionalType = Annotated[str, Field(pattern=OPTIONAL_TYPE_PATTERN, max_length=48)]
AnyType = Annotated[EventType | OptionalType, Field(union_mode="left_to_right")]
"""A type that this version knows, or one under our prefixes that it passes on unchanged."""


class EventUnreadable(Fault):
    """A stored or imported event doesn't match the schema of its version."""

    code = "EVENT_UNREADABLE"
    exit_code = ExitCode.DATA

    def advice(self) -> str:
        """Return what to do."""
        return self.advice_text or "Nothing was changed. Compare the log with a backup; other sessions are readable."


class Trace(FrozenModel):
    """Session, task and caller of an event."""

    session_id: SessionId
    """The session whose log has the event."""
    task_id: TaskId | None = None
    """Set in every event of a task."""
    request_id: str | None = None
    """The request that caused the event."""
    client_id: str | None = None
    """The client program."""
    user_id: str | None = None
    """The session's principal."""


class RuntimeInfo(FrozenModel):
    """The runtime that an event came from or belongs to."""

    name: str
    """The session's runtime, or `mcp-client` for a client that CodeSDK doesn't start."""
    model: str | None = None
    """The model, if known."""
    runtime_session_id: str | None = None
    """The runtime's own session id. A hint only; the log is authoritative."""
    raw: Any = None
    """The runtime's own frame, bounded and redacted. Also kept for frames that are understood."""
    raw_ref: ArtifactRef | None = None
    """The frame as an artifact, if it is large."""


class Event(FrozenModel):
    """One entry of a session's log, as stored and as sent."""

    schema_version: int = SCHEMA_VERSION
    """Version of the payload's shape."""
    seq: int = Field(ge=1)
    """Dense and increasing within the session; assigned by the transaction that stores the event."""
    time: str
    """RFC 3339, UTC, milliseconds. Not strictly monotonic."""
    type: AnyType
    """A type on this page, or a later one under our prefixes."""
    trace: Trace
    """Session, task and caller."""
    runtime: RuntimeInfo
    """The runtime that the event belongs to."""
    payload: dict[str, Any]
    """The type's payload."""
