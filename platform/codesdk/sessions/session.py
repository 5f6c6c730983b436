"""The options of a new session, the state of its sandbox, and the faults."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from codesdk.domain.attestation import Attestation
from codesdk.domain.decisions import PermissionMode
from codesdk.domain.ids import ArtifactId, SandboxId, SessionId
from codesdk.domain.model import FrozenModel
from codesdk.domain.records import DEFAULT_PARALLEL_CALLS, SessionPriority
from codesdk.errors import ExitCode, Fault
from codesdk.sandbox.port.faults import SandboxEnded
from codesdk.sandbox.records.store import SandboxRow, SandboxState

CLOSED_ON_REQUEST = "asked for"
"""Reason for closing: requested by a caller."""
HOST_LOST = "host lost"
"""Reason for closing: its host stopped responding or was given up."""


class NoHost(Fault):
    """No host can take the session."""

    code = "NO_HOST"
    retryable = True
    status = 503
    exit_code = ExitCode.UNAVAILABLE


class SessionUnknown(Fault):
    """No such session for this tenant."""

    code = "SESSION_UNKNOWN"
    status = 404
    exit_code = ExitCode.FAILED


class SessionRemoved(Fault):
    """Retention removed the closed session's record."""

    code = "SESSION_REMOVED"
    status = 410
    exit_code = ExitCode.FAILED


class SandboxBusy(Fault):
    """The sandbox can't be stopped now: calls are queued or running, or it's being created."""

    code = "SANDBOX_BUSY"
    retryable = True
    status = 409
    exit_code = ExitCode.UNAVAILABLE


class SessionNotEnded(Fault):
    """A new session can only start from an ended one, because an open one may still change its workspace."""

    code = "SESSION_NOT_ENDED"
    status = 409
    exit_code = ExitCode.FAILED


class SnapshotPending(Fault):
    """The session has just ended and its last snapshot isn't complete."""

    code = "SNAPSHOT_PENDING"
    retryable = True
    status = 409
    exit_code = ExitCode.UNAVAILABLE


class NoSnapshot(Fault):
    """The session has no snapshot."""

    code = "NO_SNAPSHOT"
    status = 409
    exit_code = ExitCode.FAILED


Label = Annotated[str, Field(max_length=200)]
"""A label's name or value. Validating the length also rejects lone surrogates, which no database stores."""


class SessionSandbox(FrozenModel):
    """The current state of a session's sandbox."""

    id: SandboxId
    state: SandboxState
    reason: str | None = None
    """Why it ended, where it did by itself."""
    attestation: Attestation | None = None
    """What was read back from engine and kernel when it started last; None before that."""

    @classmethod
    def of(cls, row: SandboxRow | None) -> SessionSandbox:
        """The state from its row.

        Raises:
            SandboxEnded: retention or a restore removed the row.
        """
        if row is None:
            raise SandboxEnded("The session has no sandbox any more.", advice="Open another session.")
        return cls(id=row.id, state=row.state, reason=row.reason, attestation=row.attestation)


class NewSession(FrozenModel):
    """What a caller chooses."""

    permission_mode: PermissionMode = PermissionMode.AUTO
    labels: dict[Label, Label] = Field(default={}, max_length=32)
    profile: str = Field(default="default", max_length=40)
    """Which limits its sandbox has: the name of a profile file."""
    seed_artifact: ArtifactId | None = None
    """An archive (tar, gz or not) that the workspace starts from."""
    from_session: SessionId | None = None
    """An ended session, whose last snapshot the workspace starts from; in place of `seed_artifact`."""
    snapshots: bool | None = None
    """Whether its own workspace is kept as it goes; left out: as the installation has it."""
    runtime: str = Field(default="mcp-client", max_length=40)
    priority: SessionPriority = SessionPriority.INTERACTIVE
    """`batch`: its calls let those of the tenant's interactive sessions go first."""
    parallel_calls: int = Field(default=DEFAULT_PARALLEL_CALLS, ge=1, le=64)
    """Calls that run at once, at most. Those that write to the workspace go one by one in any case."""
    watch: bool = False
    """Whether changes of files in its workspace become events (`sandbox.files_changed`)."""
    host_labels: dict[Label, Label] = Field(default={}, max_length=16)
    """Labels that its host must have, each with that value: the operator says which there are (`codesdk hosts list`)."""
    policy: str | None = Field(default=None, max_length=64 * 1024)
    """Rules of its own, as the text of a policy file (YAML): they count beside the tenant's and the installation's, and
    can only ask or deny."""

    @model_validator(mode="after")
    def _check_seed(self) -> NewSession:
        if self.seed_artifact is not None and self.from_session is not None:
            raise ValueError("its workspace starts from seed_artifact or from_session, not from both")
        return self
