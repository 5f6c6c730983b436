"""The records that clients see: session, task, tool call, artifact."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

from pydantic import Field

from codesdk.domain.artifact_refs import ArtifactRef
from codesdk.domain.calls import CallIdentity, CallState
from codesdk.domain.decisions import Evaluation, PermissionMode
from codesdk.domain.ids import ArtifactId, HostId, PrincipalId, SessionId, TaskId, TenantId
from codesdk.domain.model import FrozenModel
from codesdk.domain.runtimes import InteractionMode
from codesdk.domain.structured_errors import StructuredError

DEFAULT_PARALLEL_CALLS = 16
"""Default limit of calls that run at once: more than any known agent starts at once."""


class SessionPriority(StrEnum):
    """Order of one tenant's queued calls."""

    INTERACTIVE = "interactive"
    """Someone waits for the answer."""
    BATCH = "batch"
    """Nobody waits for the answer."""


class Session(FrozenModel):
    """A session's record."""

    id: SessionId
    tenant_id: TenantId
    principal_id: PrincipalId
    host_id: HostId
    state: Literal["open", "closed"]
    runtime: str
    permission_mode: PermissionMode
    labels: dict[str, str]
    image: str
    priority: SessionPriority = SessionPriority.INTERACTIVE
    parallel_calls: int = DEFAULT_PARALLEL_CALLS
    """Maximum number of calls that run at once."""
    watch: bool = False
    """Whether file changes in the workspace become events."""
    last_seq: int
    """The log's newest `seq`."""
    created_at: float
    """Seconds since the epoch."""
    closed_at: float | None = None
    closed_reason: str | None = None
    """`asked for`, `idle`, `lifetime`, `host lost`; missing if an earlier version closed it."""
    snapshots: bool = False
    """Whether snapshots of its workspace are taken, from which other sessions can start."""
    snapshot_artifact: ArtifactId | None = None
    """The last snapshot."""
    snapshot_at: float | None = None
    """Seconds since the epoch. The snapshot contains everything written before."""
    opened_from: SessionId | None = None
    """The session whose last snapshot the workspace started from."""
    policy_hash: str | None = None
    """Hash of the session's own rules, which apply in addition to the shared and tenant layers."""


class TaskState(StrEnum):
    """The state of a task: it runs, then ends in exactly one way."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    STOPPED = "stopped"


class Task(FrozenModel):
    """A task's record, folded from its events."""

    id: TaskId
    session_id: SessionId
    state: TaskState
    runtime: str
    model: str | None = None
    permission_mode: PermissionMode | None = None
    interaction_mode: InteractionMode | None = None
    started_at: str
    """RFC 3339, UTC, as in the event."""
    ended_at: str | None = None
    error: StructuredError | None = None
    """Set if and only if the task failed."""
    reason: str | None = None
    """Why it was stopped, or the runtime's stop reason."""


class ToolCallRecord(CallIdentity):
    """The record of one attempt of a tool call, folded from its events."""

    session_id: SessionId
    task_id: TaskId | None = None
    name: str
    """Dotted name."""
    input: dict[str, Any] | None = None
    input_ref: ArtifactRef | None = None
    """The input as an artifact, if it is large."""
    state: CallState
    sources: tuple[Evaluation, ...] = ()
    """All evaluations so far, in order."""
    approval_id: str | None = None
    is_error: bool | None = None
    code: str | None = None
    """The code of its denial or failure."""
    reason: str | None = None
    """The reason of its denial."""
    result: Any = None
    """The result, or its preview if `result_ref` has the whole."""
    result_ref: ArtifactRef | None = None
    requested_at: str
    """RFC 3339, UTC, as in the events."""
    started_at: str | None = None
    ended_at: str | None = None
    duration_ms: float | None = None
    """Duration of the run in milliseconds."""
    differs: tuple[str, ...] | None = None
    """How it differed from the approved preview, if it did."""


class Artifact(FrozenModel):
    """An artifact's record. Its bytes are found by `content_hash`, never by a path from outside."""

    id: ArtifactId
    tenant_id: TenantId
    session_id: SessionId | None = None
    content_hash: str
    """`sha256:<hex>`."""
    size: int = Field(ge=0)
    """Size in bytes."""
    content_type: str
    name: str
    """Name for display."""
    created_at: float = 0.0
    """Seconds since the epoch."""
