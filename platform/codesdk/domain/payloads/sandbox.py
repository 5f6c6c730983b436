"""Sandbox events.

Not part of the contract.
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
    """The sandbox is ready and verified. Repeated when a stopped sandbox is back."""

    event_type: ClassVar[EventType] = EventType.SANDBOX_STARTED

    sandbox_id: SandboxId
    """The sandbox's id."""
    image: str
    """Id of the image, `sha256:…`."""
    attestation: Attestation
    """What was read back from engine and kernel."""
    execution_env: ToolExecutionEnv
    """Where its tools run."""


class SandboxFailed(Payload):
    """The sandbox could not be created (retried if that may help), or ended unexpectedly (its workspace is kept)."""

    event_type: ClassVar[EventType] = EventType.SANDBOX_FAILED

    sandbox_id: SandboxId
    """The sandbox's id."""
    code: str
    """The fault's code."""
    reason: str
    """A sentence about what went wrong."""
    execution_env: ToolExecutionEnv
    """Where its tools run."""


class SandboxEgress(Payload):
    """A command tried to reach a host through the proxy. A missing value is unknown or zero."""

    event_type: ClassVar[EventType] = EventType.SANDBOX_EGRESS

    sandbox_id: SandboxId
    """The sandbox's id."""
    tool_call_id: ToolCallId
    """The call whose command it was."""
    execution_env: ToolExecutionEnv | None = None
    """Where the command ran; missing in older logs."""
    attempt: int
    """The call's attempt."""
    number: int
    """Counts the attempt's connections from 1. `opened` and `closed` of a connection have the same number."""
    phase: Literal["opened", "closed", "refused"]
    """`opened` is stored before the first byte passes."""
    reason: str | None = None
    """Why it was refused or ended; missing if nothing was wrong. [Egress](egress.md) lists the values."""
    detail: str | None = None
    """Details for people. Parts that come from the sandbox are bounded and escaped."""
    method: str | None = None
    """The HTTP method."""
    host: str | None = None
    """The host as the tool named it, in canonical form."""
    port: int | None = None
    """The port as the tool named it."""
    rule: str | None = None
    """The profile's entry that allowed it."""
    address: str | None = None
    """The address that was connected to."""
    secrets: tuple[str, ...] | None = None
    """Names of the secrets that were added."""
    bytes_up: int | None = None
    """Bytes sent."""
    bytes_down: int | None = None
    """Bytes received."""
    duration_s: float | None = None
    """Duration in seconds."""
    count: int | None = None
    """Number of refusals that this event stands for, if more than one."""


class FileChange(FrozenModel):
    """One change of a file or directory."""

    kind: Literal["created", "changed", "deleted", "moved"]
    """`created` includes replacement in one step, as by an atomic write."""
    path: str
    """Relative to the workspace. Invalid UTF-8 is replaced."""
    source: str | None = None
    """The path before a move."""


class SandboxFilesChanged(Payload):
    """Files of a watched workspace changed. One event has about a second's changes.

    A change may be reported twice, and a burst of changes as one. Omissions are always marked (`dropped`, `lost`).
    """

    event_type: ClassVar[EventType] = EventType.SANDBOX_FILES_CHANGED

    sandbox_id: SandboxId
    """The sandbox's id."""
    phase: Literal["begun", "changed", "ended"]
    """`begun`: changes are reported from here on. Earlier ones, even after a previous `begun`, may be missing."""
    changes: tuple[FileChange, ...] = ()
    """The changes, in order."""
    dropped: int = 0
    """Number of changes that are not reported by any event: reread the workspace."""
    lost: tuple[str, ...] = ()
    """Directories below which an unknown number of changes was lost: reread them."""
    method: Literal["inotify", "polling"] | None = None
    """For `begun`: `polling` checks about once a second or less often, and misses files created and deleted in between.
    """
    reason: str | None = None
    """For `ended`: the reason."""
    execution_env: ToolExecutionEnv
    """Where its tools run."""


class SandboxHalted(Payload):
    """The sandbox was stopped: its memory is free, its workspace stays. `sandbox.started` follows on restart."""

    event_type: ClassVar[EventType] = EventType.SANDBOX_HALTED

    sandbox_id: SandboxId
    """The sandbox's id."""
    execution_env: ToolExecutionEnv
    """Where its tools run."""


class SandboxSnapshotTaken(Payload):
    """A snapshot of the workspace was stored as an artifact, replacing the previous one. No call ran meanwhile."""

    event_type: ClassVar[EventType] = EventType.SANDBOX_SNAPSHOT_TAKEN

    sandbox_id: SandboxId
    """The sandbox's id."""
    snapshot: ArtifactRef
    """A tar archive; deleted when the next snapshot is taken."""
    last: bool = False
    """True for the final snapshot of a closed session. New sessions can start from it."""
    execution_env: ToolExecutionEnv
    """Where its tools run."""


class SandboxSnapshotRestored(Payload):
    """The workspace was restored from an ended session's last snapshot."""

    event_type: ClassVar[EventType] = EventType.SANDBOX_SNAPSHOT_RESTORED

    sandbox_id: SandboxId
    """The sandbox's id."""
    snapshot: ArtifactRef
    """The snapshot that was restored."""
    from_session: SessionId
    """The session that the snapshot is of."""
    execution_env: ToolExecutionEnv
    """Where its tools run."""


class SandboxStopped(Payload):
    """Container and workspace were removed."""

    event_type: ClassVar[EventType] = EventType.SANDBOX_STOPPED

    sandbox_id: SandboxId
    """The sandbox's id."""
    reason: str | None = None
    """Why it ended unexpectedly: an engine restart, memory, or someone removed it."""
    execution_env: ToolExecutionEnv
    """Where its tools run."""


class SandboxSessionClosed(Payload):
    """The session was closed. No further call starts."""

    event_type: ClassVar[EventType] = EventType.SANDBOX_SESSION_CLOSED

    reason: str
    """`asked for`, `idle`, `lifetime` or `host lost`."""
