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
from codesdk.domain.tasks import TaskState

DEFAULT_PARALLEL_CALLS = 16
"""What a session has unless it is opened with another number: more than any known agent asks for at once."""


class SessionPriority(StrEnum):
    """Whose calls go first where those of one tenant wait together."""

    INTERACTIVE = "interactive"
    """Somebody waits for the answer."""
    BATCH = "batch"
    """Nobody does."""


class Session(FrozenModel):
    """One agent's work: a workspace, a log, a token."""

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
    """Calls of this session that run at once, at most."""
    watch: bool = False
    """Changes of files in its workspace become events."""
    last_seq: int
    """The log's newest number."""
    created_at: float
    """Seconds since the epoch."""
    closed_at: float | None = None
    closed_reason: str | None = None
    """`asked for`, `idle`, `lifetime`, `host lost`; missing where an earlier version closed it."""
    snapshots: bool = False
    """Its workspace is kept as an artifact as it goes, so that another session can be opened from it."""
    snapshot_artifact: ArtifactId | None = None
    """The last that was taken."""
    snapshot_at: float | None = None
    """Seconds since the epoch: what was written by then is in it."""
    opened_from: SessionId | None = None
    """The session whose last snapshot its workspace started from."""
    policy_hash: str | None = None
    """Of the rules that it was opened with, on top of the tenant's and the installation's."""


class Task(FrozenModel):
    """One piece of work that a runtime was started for, as its events tell it."""

    id: TaskId
    session_id: SessionId
    state: TaskState
    runtime: str
    model: str | None = None
    permission_mode: PermissionMode | None = None
    interaction_mode: InteractionMode | None = None
    started_at: str
    """As in the event: RFC 3339, UTC."""
    ended_at: str | None = None
    error: StructuredError | None = None
    """Set exactly where it failed."""
    reason: str | None = None
    """Why it was stopped, or the runtime's own word for why it ended."""


class ToolCallRecord(CallIdentity):
    """One attempt of a tool call, as its events tell it."""

    session_id: SessionId
    task_id: TaskId | None = None
    name: str
    """Dotted name."""
    input: dict[str, Any] | None = None
    input_ref: ArtifactRef | None = None
    """In place of `input` where that is large."""
    state: CallState
    sources: tuple[Evaluation, ...] = ()
    """Every voice so far, in order."""
    approval_id: str | None = None
    is_error: bool | None = None
    code: str | None = None
    """Of its denial, or of its failure."""
    reason: str | None = None
    """Of its denial."""
    result: Any = None
    """The result, or its preview where `result_ref` has the whole."""
    result_ref: ArtifactRef | None = None
    requested_at: str
    """As in the events: RFC 3339, UTC."""
    started_at: str | None = None
    ended_at: str | None = None
    duration_ms: float | None = None
    """Milliseconds of the run itself."""
    differs: tuple[str, ...] | None = None
    """In what it was not as the preview that was approved, where it was not."""


class Artifact(FrozenModel):
    """One stored file. The bytes are found by `content_hash`, never by a path from outside."""

    id: ArtifactId
    tenant_id: TenantId
    session_id: SessionId | None = None
    content_hash: str
    """`sha256:<hex>`."""
    size: int = Field(ge=0)
    """Bytes."""
    content_type: str
    name: str
    """For people."""
    created_at: float = 0.0
    """Seconds since the epoch."""
