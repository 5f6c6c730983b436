"""The options of a new session, the state of its sandbox, and the faults."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from codesdk.domain.attestation import Attestation
from codesdk.domain.decisions import PermissionMode
from codesdk.domain.ids import ArtifactId, SandboxId, SessionId
from codesdk.domain.model import FrozenModel
from codesdk.domain.records import DEFAULT_PARALLEL_CALLS, SessionPriority
from codesdk.errors import Conflict, ExitCode, Fault, NotFound, Unavailable
from codesdk.sandbox.port.faults import SandboxEnded
from codesdk.sandbox.records.store import SandboxRow, SandboxState

CLOSED_ON_REQUEST = "asked for"
"""Reason for closing: requested by a caller."""
HOST_LOST = "host lost"
"""Reason for closing: its host stopped responding or was declared lost."""


class NoHost(Unavailable):
    """No host can take the session."""

    code = "NO_HOST"


class SessionUnknown(NotFound):
    """No such session for this tenant."""

    code = "SESSION_UNKNOWN"


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


class SessionNotEnded(Conflict):
    """A new session can only start from an ended one, because an open one may still change its workspace."""

    code = "SESSION_NOT_ENDED"


class SnapshotPending(Fault):
    """The session has just ended and its last snapshot isn't complete."""

    code = "SNAPSHOT_PENDING"
    retryable = True
    status = 409
    exit_code = ExitCode.UNAVAILABLE


class NoSnapshot(Conflict):
    """The session has no snapshot."""

    code = "NO_SNAPSHOT"


Label = Annotated[str, Field(max_length=200)]
"""A label's name or value. Validating the length also rejects lone surrogates, which no database stores."""


class SessionSandbox(FrozenModel):
    """The current state of a session's sandbox."""

    id: SandboxId
    state: SandboxState
    reason: str | None = None
    """Why it ended, if it has."""
    attestation: Attestation | None = None
    """What was read back from engine and kernel after the last start. None before the first."""

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
    """The options of a new session."""

    permission_mode: PermissionMode = PermissionMode.AUTO
    labels: dict[Label, Label] = Field(default={}, max_length=32)
    profile: str = Field(default="default", max_length=40)
    """Name of the profile that sets the sandbox's limits."""
    seed_artifact: ArtifactId | None = None
    """An archive (tar, gzipped or not) with the workspace's initial files."""
    from_session: SessionId | None = None
    """An ended session whose last snapshot the workspace starts from. Excludes `seed_artifact`."""
    snapshots: bool | None = None
    """Whether to take snapshots of the workspace. None: the installation's default."""
    runtime: str = Field(default="mcp-client", max_length=40)
    priority: SessionPriority = SessionPriority.INTERACTIVE
    """`batch`: its calls run after those of the tenant's interactive sessions."""
    parallel_calls: int = Field(default=DEFAULT_PARALLEL_CALLS, ge=1, le=64)
    """Maximum number of calls that run at once. Calls that write to the workspace always run one at a time."""
    watch: bool = False
    """Whether file changes in the workspace are logged as events (`sandbox.files_changed`)."""
    host_labels: dict[Label, Label] = Field(default={}, max_length=16)
    """Labels that the host must have. Operators define a host's labels; `codesdk hosts list` prints them."""
    policy: str | None = Field(default=None, max_length=64 * 1024)
    """The session's own rules, as the text of a policy file (YAML).

    They apply in addition to the shared and tenant layers, and can only ask or deny.
    """

    @model_validator(mode="after")
    def _check_seed(self) -> NewSession:
        if self.seed_artifact is not None and self.from_session is not None:
            raise ValueError("its workspace starts from seed_artifact or from_session, not from both")
        return self
