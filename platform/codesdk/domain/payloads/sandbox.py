"""Of a session's sandbox.

Ours, beyond the contract.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from codesdk.domain.artifact_refs import ArtifactRef
from codesdk.domain.attestation import Attestation
from codesdk.domain.events import EventType
from codesdk.domain.execution import ToolExecutionEnv
from codesdk.domain.ids import SandboxId, SessionId, ToolCallId
from codesdk.domain.model import FrozenModel
from codesdk.domain.payloads.payload import Payload


class SandboxStarted(Payload):
    """The sandbox is ready and is as asked; again where it was halted."""

    event_type: ClassVar[EventType] = EventType.SANDBOX_STARTED

    sandbox_id: SandboxId
    """Which one."""
    image: str
    """Id of the image, `sha256:…`."""
    attestation: Attestation
    """What was read back from engine and kernel."""
    execution_env: ToolExecutionEnv
    """Where its tools run."""


class SandboxFailed(Payload):
    """It could not be made, and is tried again where that may help; or it went away by itself, and its workspace is kept."""

    event_type: ClassVar[EventType] = EventType.SANDBOX_FAILED

    sandbox_id: SandboxId
    """Which one."""
    code: str
    """Of the fault."""
    reason: str
    """What went wrong, in a sentence."""
    execution_env: ToolExecutionEnv
    """Where its tools run."""


class SandboxEgress(Payload):
    """A command tried to reach a host through the proxy. What is missing is not known, or zero."""

    event_type: ClassVar[EventType] = EventType.SANDBOX_EGRESS

    sandbox_id: SandboxId
    """Which one."""
    tool_call_id: ToolCallId
    """Whose command it was."""
    execution_env: ToolExecutionEnv | None = None
    """Where the command ran; missing in older logs."""
    attempt: int
    """Of the call."""
    number: int
    """Counts the attempt's connections from 1; `opened` and `closed` of one share it."""
    phase: Literal["opened", "closed", "refused"]
    """`opened` is stored before the first byte passes."""
    reason: str | None = None
    """Why it was refused or ended; missing where nothing was wrong. The words are in [egress](egress.md)."""
    detail: str | None = None
    """For a person; what comes from the sandbox in it is bounded and escaped."""
    method: str | None = None
    """Of HTTP."""
    host: str | None = None
    """Canonical, as the tool named it."""
    port: int | None = None
    """As the tool named it."""
    rule: str | None = None
    """The entry of the profile that allowed it."""
    address: str | None = None
    """What was connected to."""
    secrets: tuple[str, ...] | None = None
    """Names of the secrets that were added."""
    bytes_up: int | None = None
    """Bytes that left."""
    bytes_down: int | None = None
    """Bytes that came."""
    duration_s: float | None = None
    """Seconds."""
    count: int | None = None
    """How many refusals this stands for, where more than one."""


class FileChange(FrozenModel):
    """One change of a file or directory."""

    kind: Literal["created", "changed", "deleted", "moved"]
    """`created` also where another took its place in one step, as by an atomic write."""
    path: str
    """Relative to the workspace; what is no UTF-8 in it is replaced."""
    source: str | None = None
    """Of a move: the path before."""


class SandboxFilesChanged(Payload):
    """Files of a watched workspace changed: about a second's changes in one event.

    A change may be told twice, and those of a burst as one; none is left out without a mark (`dropped`, `lost`).
    """

    event_type: ClassVar[EventType] = EventType.SANDBOX_FILES_CHANGED

    sandbox_id: SandboxId
    """Whose workspace."""
    phase: Literal["begun", "changed", "ended"]
    """`begun`: from here on changes are told, and those before it, since an earlier `begun` too, may be missing."""
    changes: tuple[FileChange, ...] = ()
    """In order."""
    dropped: int = 0
    """Changes beyond those of this event, which nothing else tells of: look at the workspace anew."""
    lost: tuple[str, ...] = ()
    """Directories beneath which changes were lost, and how many is unknown: look at them anew."""
    method: Literal["inotify", "polling"] | None = None
    """Of `begun`, how changes are seen: `polling` looks once a second or less, and misses what was made and deleted between."""
    reason: str | None = None
    """Of `ended`, why."""
    execution_env: ToolExecutionEnv
    """Where its tools run."""


class SandboxHalted(Payload):
    """Its processes have ended and its memory is free; the workspace stays. `sandbox.started` follows when it is back."""

    event_type: ClassVar[EventType] = EventType.SANDBOX_HALTED

    sandbox_id: SandboxId
    """Which one."""
    execution_env: ToolExecutionEnv
    """Where its tools run."""


class SandboxSnapshotTaken(Payload):
    """The workspace was kept as an artifact, in place of the snapshot before; no call ran meanwhile."""

    event_type: ClassVar[EventType] = EventType.SANDBOX_SNAPSHOT_TAKEN

    sandbox_id: SandboxId
    """Whose workspace."""
    snapshot: ArtifactRef
    """A tar; it is deleted when the next one is taken."""
    last: bool = False
    """The session is closed: this is what another one that is opened from it starts from."""
    execution_env: ToolExecutionEnv
    """Where its tools run."""


class SandboxSnapshotRestored(Payload):
    """The workspace starts from an ended session's last snapshot."""

    event_type: ClassVar[EventType] = EventType.SANDBOX_SNAPSHOT_RESTORED

    sandbox_id: SandboxId
    """Whose workspace."""
    snapshot: ArtifactRef
    """What was restored."""
    from_session: SessionId
    """Whose workspace it was."""
    execution_env: ToolExecutionEnv
    """Where its tools run."""


class SandboxStopped(Payload):
    """Container and workspace are removed."""

    event_type: ClassVar[EventType] = EventType.SANDBOX_STOPPED

    sandbox_id: SandboxId
    """Which one."""
    reason: str | None = None
    """Why, where it ended by itself: an engine that was restarted, memory, or somebody who removed it."""
    execution_env: ToolExecutionEnv
    """Where its tools run."""


class SandboxSessionClosed(Payload):
    """The session was closed: no further call starts."""

    event_type: ClassVar[EventType] = EventType.SANDBOX_SESSION_CLOSED

    reason: str
    """`asked for`, `idle`, `lifetime` or `host lost`."""
