"""The sandbox port: isolated execution for one owner. Every implementation passes tests/contract/test_sandboxes.py.

Calls are synchronous and thread-safe. Outcomes inside the sandbox (non-zero exit, timeout, missing file) are values; a
`Fault` means that the sandbox, the engine or the image failed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Protocol

from pydantic import Field

from codesdk.domain.attestation import Attestation
from codesdk.domain.execution import SandboxSummary, ToolExecutionEnv
from codesdk.domain.model import FrozenModel
from codesdk.sandbox.port.execs import (
    Chunk,
    ExecRequest,
    ExecResult,
    ExitKind,
    Input,
    OnOutput,
    Output,
    OutputCount,
    Process,
    Processes,
    ProcessLimits,
    Pty,
    Stream,
)
from codesdk.sandbox.port.files import (
    Change,
    ChangeKind,
    Changes,
    FileContent,
    FileError,
    FileFingerprint,
    FileInfo,
    FileKind,
    FileRefused,
    Files,
    FileWrite,
    FingerprintKind,
    Listing,
    Manifest,
    ManifestEntry,
    NamedPath,
    Watch,
    WatchMethod,
)
from codesdk.sandbox.profiles.profile import Profile
from codesdk.sandbox.runner.workspace.names import spell, unspell

__all__ = (
    "DOCKER",
    "HOST",
    "Attestation",
    "Change",
    "ChangeKind",
    "Changes",
    "Chunk",
    "ExecRequest",
    "ExecResult",
    "ExecutionEnvironment",
    "ExitKind",
    "FileContent",
    "FileError",
    "FileFingerprint",
    "FileInfo",
    "FileKind",
    "FileRefused",
    "FileWrite",
    "Files",
    "FingerprintKind",
    "Input",
    "Listing",
    "Manifest",
    "ManifestEntry",
    "NamedPath",
    "OnOutput",
    "Output",
    "OutputCount",
    "Process",
    "ProcessLimits",
    "Processes",
    "Pty",
    "Sandbox",
    "SandboxMissing",
    "SandboxSpec",
    "Sandboxes",
    "SharedWorkspace",
    "Stream",
    "SweepResult",
    "Watch",
    "WatchMethod",
    "spell",
    "unspell",
)


DOCKER, HOST = ToolExecutionEnv.CODESDK_DOCKER.value, ToolExecutionEnv.CODESDK_HOST.value
"""Values of `execution_env`: a Docker container, or processes of the host."""


class ExecutionEnvironment(FrozenModel):
    """Where a driver runs tools; part of every call's start and end event."""

    environment: str = DOCKER
    network: bool = False
    """Whether tools share the host's network."""
    mounts: tuple[str, ...] = ("/workspace",)
    """Writable mounts, as tools see them."""

    def summary(self, timeout_s: float) -> SandboxSummary:
        """The `sandbox` field of a call's events."""
        return SandboxSummary(network=self.network, timeout_ms=int(timeout_s * 1000), mounts=self.mounts)


class SharedWorkspace(FrozenModel):
    """Another sandbox's workspace, mounted read-only."""

    owner: str
    """Id of the sandbox that owns it, on the same engine. Removing the owner also removes this sandbox."""
    place: str = Field(pattern=r"^/[a-z0-9._-]+$")
    """Mount point."""


class SandboxSpec(FrozenModel):
    """The sandbox to create. Names are derived from the owner, so an interrupted open can be repeated."""

    owner: str
    """Sandbox id (`sbx_…`) of its database row; part of the name and labels of every engine object."""
    instance: str
    """Id of the installation; a sweep only removes its own."""
    profile: Profile
    image: str
    """Image id or digest (`sha256:…`), never a tag."""
    tool_uid: int = Field(ge=10_000)
    """Uid and gid that tools run as; unique on the host, because limits and /proc are shared per uid."""
    generation: int = Field(ge=1)
    """The worker's fencing token: the runner obeys the highest one it has seen."""
    borrows: SharedWorkspace | None = None
    """A second workspace, read-only."""


class Sandbox(Protocol):
    """One live sandbox."""

    @property
    def owner(self) -> str:
        """The id it was opened for."""
        ...

    @property
    def attestation(self) -> Attestation:
        """Isolation as read back from engine and kernel at the start."""
        ...

    @property
    def runner(self) -> str:
        """Boot id of its runner. A new runner knows nothing of earlier execs."""
        ...

    @property
    def files(self) -> Files:
        """Its workspace."""
        ...

    def files_of(self, call: str, attempt: int) -> Files:
        """The workspace on behalf of one call: after the call is cancelled, no operation begins.

        A pending read is abandoned. An operation that changes files and was already sent runs to its end.

        Raises (each operation):
            CallCancelled: the call was cancelled before this operation changed anything.
        """
        ...

    @property
    def processes(self) -> Processes:
        """Background execs, terminals and streamed stdin."""
        ...

    def exec(self, request: ExecRequest, on_output: OnOutput) -> ExecResult:
        """Run a command and wait for its end. `on_output` is called in order, on this thread, before this returns.

        Idempotent per (call, attempt): a repeat joins the running exec or returns its stored result.

        Raises:
            SandboxGone: the sandbox ended or is unreachable. `was_sent` False: the exec didn't run; else that is unknown.
            StaleGeneration: a newer worker owns the sandbox.
            CallCancelled: cancelled before the runner got the request; it didn't run.
        """
        ...

    def cancel(self, call: str, attempt: int) -> bool:
        """Kill the exec's process tree. True: the runner confirms that none of it is left. False: no such exec.

        An exec that still waits for the engine or a snapshot, and isn't `taken_up`, never starts: True at once.
        """
        ...

    def acknowledge(self, call: str, attempt: int) -> None:
        """The result is committed: the runner may drop the stored output."""
        ...

    def snapshot(self) -> Iterator[bytes]:
        """Stream the workspace as a tar. Tools are frozen, and execs wait, until the iterator ends or is closed.

        Keeps modes, times, symlinks and hard links; omits sockets, FIFOs and files the tool user can't read. The runner
        aborts it after 30 seconds without a read.

        Raises:
            SnapshotFailed: another is in progress, it was aborted, or the workspace exceeds 2 GiB.
        """
        ...

    def restore(self, pieces: Iterable[bytes], *, replace: bool = False) -> int:
        """Restore a snapshot, also another sandbox's, and return the number of entries. Tools are frozen meanwhile.

        `replace`: empty the workspace first; otherwise it must be empty. After a failure it is empty.

        Raises:
            ArchiveRefused: entries outside the workspace, devices, too large, or not a tar.
            SnapshotFailed: another is in progress, the workspace isn't empty, or it was aborted.
        """
        ...

    def import_tar(self, archive: bytes) -> int:
        """Unpack a tar (plain or gzip) into the workspace as the tool user; returns the number of files.

        Raises:
            ArchiveRefused: entries or links outside the workspace, devices, or too large.
        """
        ...

    def close(self) -> None:
        """Close the connection; the sandbox keeps running."""
        ...


class SandboxMissing(FrozenModel):
    """The sandbox no longer exists."""

    owner: str
    reason: str


class SweepResult(FrozenModel):
    """What a sweep removed."""

    containers: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()


class Sandboxes(Protocol):
    """Creates, finds and removes sandboxes on one host."""

    @property
    def execution_environment(self) -> ExecutionEnvironment:
        """Where tools run; the same for all sandboxes of a driver."""
        ...

    def open(self, spec: SandboxSpec) -> Sandbox:
        """Create and start a sandbox, or continue an interrupted open of the same owner.

        Raises:
            EngineUnavailable: the engine doesn't answer.
            ImageMissing: the image isn't on the host.
            IsolationDrift: isolation differs from the spec; the sandbox was removed.
        """
        ...

    def reattach(self, owner: str, generation: int) -> Sandbox | SandboxMissing:
        """Connect to the owner's running sandbox; from now on it obeys `generation`."""
        ...

    def pause(self, owner: str) -> None:
        """Freeze all processes. Until `resume`, requests raise `SandboxPaused` within seconds. Idempotent.

        A driver without a freezer may do nothing: pausing saves resources and has no other effect.

        Raises:
            SandboxGone: it ended.
        """
        ...

    def resume(self, owner: str) -> None:
        """Unfreeze all processes. Idempotent.

        Raises:
            SandboxGone: it ended.
        """
        ...

    def stop(self, owner: str) -> None:
        """End all processes and free their memory; keep the workspace. Idempotent.

        Until `start`, the sandbox can't be opened or reattached.

        Raises:
            SandboxGone: there is no workspace.
            StopRefused: the workspace is in memory and would be lost.
        """
        ...

    def start(self, spec: SandboxSpec) -> Sandbox:
        """Start a stopped sandbox with its workspace. Ends processes and remains of an interrupted start first.

        A failure doesn't change the workspace.

        Raises:
            SandboxGone: there is no workspace, or the sandbox was destroyed.
            EngineUnavailable, ImageMissing, IsolationDrift: as `open`.
        """
        ...

    def destroy(self, owner: str) -> None:
        """Remove container and workspace. Idempotent."""
        ...

    def sweep(self, alive: Collection[str] | Callable[[], Collection[str]]) -> SweepResult:
        """Remove every sandbox of this installation whose owner is not in `alive`, except those being opened.

        A callable is evaluated after the engine was listed: a sandbox opened meanwhile has its row by then and is kept.
        """
        ...

    def close(self) -> None:
        """Disconnect from the engine; sandboxes keep running."""
        ...
