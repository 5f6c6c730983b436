"""The sandbox port: isolated execution for one owner. Every implementation passes tests/contract/test_sandboxes.py.

Calls are synchronous and made from threads. Outcomes of what ran inside (a non-zero exit, a timeout, a missing file)
are values; a `Fault` means that the sandbox itself, the engine or the image failed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Protocol

from pydantic import Field

from codesdk.domain.attestation import Attestation
from codesdk.domain.decisions import FrozenModel
from codesdk.domain.execution import SandboxSummary, ToolExecutionEnv
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
    "Gone",
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
    "SandboxSpec",
    "Sandboxes",
    "SharedWorkspace",
    "Stream",
    "Swept",
    "Watch",
    "WatchMethod",
)


DOCKER, HOST = ToolExecutionEnv.CODESDK_DOCKER.value, ToolExecutionEnv.CODESDK_HOST.value
"""Words of `execution_env`: in a container of an engine, or as processes of the machine itself."""


class ExecutionEnvironment(FrozenModel):
    """Where an implementation runs what it runs: told at the start and the end of every call."""

    environment: str = DOCKER
    network: bool = False
    """Tools reach the machine's network: nothing separates them from it."""
    mounts: tuple[str, ...] = ("/workspace",)
    """The writable part of the outside that tools see."""

    def summary(self, timeout_s: float) -> SandboxSummary:
        """The `sandbox` of a call's events."""
        return SandboxSummary(network=self.network, timeout_ms=int(timeout_s * 1000), mounts=self.mounts)


class SharedWorkspace(FrozenModel):
    """Another sandbox's workspace, which can be read here and not be written."""

    owner: str
    """Whose: the row of a sandbox on the same engine. What borrows it ends with it."""
    place: str = Field(pattern=r"^/[a-z0-9._-]+$")
    """Where it stands, beside the sandbox's own."""


class SandboxSpec(FrozenModel):
    """What to make. The same spec and owner always give the same names, so an interrupted open can be repeated."""

    owner: str
    """The row that owns it: a sandbox id (`sbx_…`). Part of every engine object's name and label."""
    instance: str
    """The installation that may clean it up; a sweep never touches another's."""
    profile: Profile
    image: str
    """Image id or digest (`sha256:…`), never a tag."""
    tool_uid: int = Field(ge=10_000)
    """Uid and gid that tools run as; unique on the host, because limits and /proc are shared per uid."""
    generation: int = Field(ge=1)
    """The worker's fencing number: the runner obeys the highest that it has seen."""
    borrows: SharedWorkspace | None = None
    """A workspace beside its own."""


class Sandbox(Protocol):
    """One live sandbox."""

    @property
    def owner(self) -> str:
        """The id it was opened for."""
        ...

    @property
    def attestation(self) -> Attestation:
        """What was read back when it started."""
        ...

    @property
    def runner(self) -> str:
        """Which run of its runner this is: another one knows nothing of what this one ran."""
        ...

    @property
    def files(self) -> Files:
        """Its workspace."""
        ...

    def files_of(self, call: str, attempt: int) -> Files:
        """The same, for one call: once that is cancelled, none of its operations begins.

        One that only reads may be left to itself then. One that changes something, and was asked for, ends as it does.

        Raises (each operation):
            CallWithdrawn: the call was cancelled, and has changed nothing by this.
        """
        ...

    @property
    def processes(self) -> Processes:
        """Its execs: in the background, with a terminal, with stdin that comes bit by bit."""
        ...

    def exec(self, request: ExecRequest, on_output: OnOutput) -> ExecResult:
        """Run to the end. `on_output` is called in order, from this thread, before the result returns.

        The same (call, attempt) again joins the running exec or answers its stored result; it never runs twice.

        Raises:
            SandboxGone: the sandbox ended or cannot be reached; whether the exec ran is unknown, unless `was_sent` is
                False: then it did not.
            StaleGeneration: a newer worker owns the sandbox.
            CallWithdrawn: it was cancelled before its runner was asked for it; it did not run.
        """
        ...

    def cancel(self, call: str, attempt: int) -> bool:
        """End that exec's tree; True when the runner confirms that nothing of it lives. False: no such exec.

        One that waits for an engine that is away, or for a snapshot, and was not `taken_up`, does not begin: True, at once.
        """
        ...

    def acknowledge(self, call: str, attempt: int) -> None:
        """The result is committed: the runner may forget its spool."""
        ...

    def snapshot(self) -> Iterator[bytes]:
        """The workspace as a tar, piece by piece. Every tool stands still until it is over or closed; execs wait.

        Modes, times, symlinks as they are and hard links are kept; sockets, FIFOs, and what the tool user closed to
        itself are left out. The sandbox gives it up when nobody has read for 30 seconds.

        Raises:
            SnapshotFailed: another is under way, it was given up, or the workspace is too large (2 GiB).
        """
        ...

    def restore(self, pieces: Iterable[bytes], *, replace: bool = False) -> int:
        """Fill the workspace from a snapshot, also of another sandbox; the number of entries. Tools stand still.

        Replace: delete first what is there; otherwise it must be empty. After a failure it is empty.

        Raises:
            ArchiveRefused: entries that leave the workspace, devices, too large, or no tar.
            SnapshotFailed: another is under way, it is not empty, or it was given up.
        """
        ...

    def import_tar(self, archive: bytes) -> int:
        """Unpack a tar (plain or gz) into the workspace as the tool user; returns the number of files.

        Raises:
            ArchiveRefused: entries that leave the workspace, devices, links out of it, or too large.
        """
        ...

    def close(self) -> None:
        """Let go of the connection; the sandbox lives on."""
        ...


class Gone(FrozenModel):
    """There is no such sandbox any more."""

    owner: str
    reason: str


class Swept(FrozenModel):
    """What a sweep removed."""

    containers: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()


class Sandboxes(Protocol):
    """Makes, finds and removes sandboxes on one host."""

    @property
    def execution_environment(self) -> ExecutionEnvironment:
        """Where it runs things; the same for all of its sandboxes."""
        ...

    def open(self, spec: SandboxSpec) -> Sandbox:
        """Create and start, or take up what an interrupted open of the same owner left.

        Raises:
            EngineUnavailable: the engine does not answer.
            ImageMissing: the image is not on the host.
            IsolationDrift: what was read back is not what was asked; the sandbox was removed.
        """
        ...

    def reattach(self, owner: str, generation: int) -> Sandbox | Gone:
        """The running sandbox of that owner, now obeying `generation`."""
        ...

    def pause(self, owner: str) -> None:
        """Freeze every process of it; what is asked of it before `resume` is answered with `SandboxPaused`, soon.

        Doing it twice is no error. A driver that cannot may do nothing: what is promised is that nothing is lost, not what it saves.

        Raises:
            SandboxGone: it ended.
        """
        ...

    def resume(self, owner: str) -> None:
        """Let it go on; no error where it is not paused.

        Raises:
            SandboxGone: it ended.
        """
        ...

    def stop(self, owner: str) -> None:
        """End every process of it and free its memory; the workspace stays. Doing it twice is no error.

        Until `start`, it can be neither opened nor taken up.

        Raises:
            SandboxGone: there is no workspace of it.
            StopRefused: its workspace is in memory, and would not stay.
        """
        ...

    def start(self, spec: SandboxSpec) -> Sandbox:
        """Bring a stopped one back with its workspace. What runs in it, or an interrupted start left, ends first.

        A failure leaves the workspace as it is.

        Raises:
            SandboxGone: there is no workspace of it, or it was destroyed.
            EngineUnavailable, ImageMissing, IsolationDrift: as `open`.
        """
        ...

    def destroy(self, owner: str) -> None:
        """Remove container and workspace; doing it twice is no error."""
        ...

    def sweep(self, alive: Collection[str] | Callable[[], Collection[str]]) -> Swept:
        """Remove everything of this instance whose owner is not in `alive`.

        A function is called after the engine was asked what there is, so that a sandbox which is opened meanwhile, whose
        owner row was written before, is never taken for a leftover. Opens that are under way here are left alone.
        """
        ...

    def close(self) -> None:
        """Let go of the engine; sandboxes live on."""
        ...
