"""The sandbox port: isolated execution for one owner. Every implementation passes tests/contract/test_sandboxes.py.

Calls are synchronous and made from threads. Outcomes of what ran inside (a non-zero exit, a timeout, a missing file)
are values; a `Fault` means that the sandbox itself, the engine or the image failed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from enum import StrEnum
from typing import Literal, Protocol

from pydantic import Field

from codesdk.domain.decisions import Frozen
from codesdk.sandbox.egress.rules import NOTHING, EgressRules
from codesdk.sandbox.profile import Profile
from codesdk.sandbox.surroundings import DOCKER, Surroundings

Stream = Literal["stdout", "stderr"]


class SandboxSpec(Frozen):
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


class Pty(Frozen):
    """A terminal's size in characters."""

    rows: int = Field(default=24, ge=1, le=4096)
    cols: int = Field(default=80, ge=1, le=4096)


class ExecRequest(Frozen):
    """One process tree to run."""

    call: str
    """With `attempt`, the identity that the runner runs at most once."""
    attempt: int = Field(default=1, ge=1)
    argv: tuple[str, ...] = Field(min_length=1)
    cwd: str = "."
    """Relative to the workspace."""
    env: dict[str, str] = {}
    stdin: bytes = b""
    stdin_open: bool = False
    """More follows by `Processes.write`; otherwise stdin is at its end after `stdin`."""
    pty: Pty | None = None
    """Run it in a terminal: its output is one raw stream, stdout, and stdin is what is typed."""
    egress: EgressRules = NOTHING
    """Hosts that this exec may reach, within those of the profile; `profile.egress` itself for all of them."""
    timeout_s: float = Field(default=60.0, gt=0)
    """Wall time; then TERM, the profile's grace, KILL to the whole tree."""
    keep_bytes: int = Field(default=16 * 1024 * 1024, ge=0)
    """Bytes kept per stream: half of them from its beginning, half from its end; what lies between is counted."""


class ExitKind(StrEnum):
    """How a process tree ended, told apart by evidence and never guessed from an exit code."""

    EXITED = "exited"
    SIGNALED = "signaled"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    OOM_KILLED = "oom_killed"
    SPAWN_FAILED = "spawn_failed"


class OutputCount(Frozen):
    """Accounting of one stream."""

    bytes: int = 0
    dropped: int = 0
    gap: int = 0
    """Offset of the first dropped byte; what was kept stands before it and at the end of the stream."""


class ExecResult(Frozen):
    """What the runner saw of the end."""

    kind: ExitKind
    exit_code: int | None = None
    """What the first process ended with, where it ended by itself; kept beside timed_out, cancelled and oom_killed."""
    signal: int | None = None
    """What killed the first process, where something did."""
    error: str = ""
    """Why the spawn failed."""
    duration_s: float = 0.0
    cpu_s: float = 0.0
    """CPU seconds of the whole tree."""
    max_rss_kb: int = 0
    """Largest process of the tree. Not below the runner's own size (about 10 MB), from which processes are forked."""
    oom_kills: int = 0
    """Processes of the sandbox that the kernel killed for memory meanwhile; with other execs running, maybe theirs."""
    stdout: OutputCount = OutputCount()
    stderr: OutputCount = OutputCount()


class Chunk(Frozen):
    """A piece of output. Offsets count the raw bytes of that stream, so a repeated chunk can be recognised."""

    stream: Stream
    offset: int
    data: bytes


OnOutput = Callable[[Chunk], None]


class Process(Frozen):
    """One exec as the runner sees it now: running, or ended and not acknowledged yet."""

    call: str
    attempt: int
    argv: tuple[str, ...]
    background: bool = False
    age_s: float = 0.0
    result: ExecResult | None = None
    """How it ended; None while it runs."""
    stdout: OutputCount = OutputCount()
    stderr: OutputCount = OutputCount()


class Output(Frozen):
    """Output of an exec from `offset`, which is later than asked where the bytes between were dropped."""

    offset: int
    data: bytes
    seen: int
    """Bytes that the stream has had so far."""
    over: bool
    """The exec has ended: nothing more comes."""


class Input(Frozen):
    """Where an exec's stdin stands."""

    offset: int
    """Bytes that were taken since its start."""
    open: bool
    """It takes more."""


class Processes(Protocol):
    """The sandbox's execs beyond one blocking call. Stopped by `Sandbox.cancel`, forgotten by `Sandbox.acknowledge`.

    They live until they end, their `timeout_s` is over, or the sandbox ends. What their leader leaves behind is ended
    with it, so a server is started in the foreground of its exec.
    """

    def start(self, request: ExecRequest) -> Process:
        """Start it and return at once. The same (call, attempt) again answers how it stands and never runs twice.

        Raises:
            SandboxGone, StaleGeneration: as `Sandbox.exec`.
        """
        ...

    def list(self) -> tuple[Process, ...]:
        """Every exec that is not acknowledged, of `Sandbox.exec` too, oldest first."""
        ...

    def output(
        self, call: str, attempt: int, stream: Stream, offset: int, *, length: int = 65_536, wait_s: float = 0.0
    ) -> Output | None:
        """At most `length` bytes from `offset`; waits up to `wait_s` (20 at most) for some. None: no such exec."""
        ...

    def write(self, call: str, attempt: int, data: bytes, *, end: bool = False, wait_s: float = 20.0) -> Input | None:
        """Stdin for an exec with `stdin_open` or a terminal; in the terminal's case `end` types Ctrl-D.

        Returns when all was taken, its stdin was closed, or the tool has read nothing for `wait_s`: the offset tells.
        None: no such exec.
        """
        ...

    def signal(self, call: str, attempt: int, number: int) -> bool:
        """Send a signal to the whole tree; False where there is none that runs, or it is being ended already."""
        ...

    def resize(self, call: str, attempt: int, size: Pty) -> bool:
        """Change the size of its terminal; False where it has none."""
        ...


class FileKind(StrEnum):
    """What a path is."""

    FILE = "file"
    DIRECTORY = "directory"
    SYMLINK = "symlink"
    OTHER = "other"


class FileError(StrEnum):
    """Why a file operation did not happen; an outcome, not a fault."""

    NOT_FOUND = "NOT_FOUND"
    NOT_A_FILE = "NOT_A_FILE"
    NOT_A_DIRECTORY = "NOT_A_DIRECTORY"
    IS_A_DIRECTORY = "IS_A_DIRECTORY"
    PERMISSION = "PERMISSION_DENIED"
    OUTSIDE = "OUTSIDE_WORKSPACE"
    TOO_LARGE = "TOO_LARGE"
    NO_SPACE = "NO_SPACE"
    CONFLICT = "CONFLICT"
    """A precondition (`if_sha256`) did not hold: the file changed in between."""
    INVALID = "INVALID_PATH"


class FileRefused(Frozen):
    """A file operation's "no"."""

    error: FileError
    path: str
    message: str


class FileInfo(Frozen):
    """One entry. `path` is relative to the workspace, with `/`."""

    path: str
    kind: FileKind
    size: int = 0
    mode: int = 0
    mtime: float = 0.0
    """Seconds since the epoch."""


class FileContent(Frozen):
    """Bytes of a file from `offset`; `size` and `sha256` are the whole file's (sha256 only when all of it was read)."""

    data: bytes
    offset: int
    size: int
    sha256: str | None = None


class Listing(Frozen):
    """Entries of a directory, sorted by path; `truncated` says that `limit` cut them."""

    entries: tuple[FileInfo, ...]
    truncated: bool = False


class FileWrite(Frozen):
    """One file of an atomic batch: content to write, or None to delete."""

    path: str
    content: bytes | None
    if_sha256: str | None = None
    """`sha256:…` that the file must have now; `absent` where it must not exist."""
    mode: int | None = None
    """Permission bits; None keeps the file's, or 0o644 for a new one."""


class ManifestEntry(Frozen):
    """One entry, with what tells whether it has changed."""

    path: str
    kind: FileKind
    mode: int
    size: int = 0
    mtime_ns: int = 0
    mark: str | None = None
    """A file's `sha256:…`, a symlink's target; None for a file that is too large to hash or cannot be read."""


class Manifest(Frozen):
    """What a workspace held at one moment, sorted by path; two of them are compared by `sandbox.diff`."""

    entries: tuple[ManifestEntry, ...] = ()


class Files(Protocol):
    """Files beneath the workspace, with the tool user's rights, whatever symlinks say."""

    def read(self, path: str, *, offset: int = 0, length: int | None = None) -> FileContent | FileRefused:
        """Bytes from `offset`, at most `length` (None: up to the profile's `max_read_bytes`)."""
        ...

    def write(self, writes: tuple[FileWrite, ...]) -> tuple[FileInfo, ...] | FileRefused:
        """All or none as far as checks go: every precondition is checked before the first rename."""
        ...

    def list(self, path: str, *, depth: int = 1, limit: int = 1000) -> Listing | FileRefused:
        """Entries beneath `path`, down to `depth` levels; symlinks are shown, never followed."""
        ...

    def stat(self, path: str) -> FileInfo | FileRefused:
        """One entry; a symlink is described as itself."""
        ...

    def make_directory(self, path: str) -> FileInfo | FileRefused:
        """A directory, and those above it; no error where it is there."""
        ...

    def move(self, path: str, target: str, *, replace: bool = False) -> FileInfo | FileRefused:
        """Rename within the workspace; CONFLICT where the target exists and `replace` is not asked for."""
        ...

    def delete(self, path: str, *, recursive: bool = False) -> int | FileRefused:
        """Delete an entry, with all beneath it where `recursive`; how many entries there were. Links are not followed."""
        ...

    def upload(
        self, path: str, pieces: Iterable[bytes], *, if_sha256: str | None = None, mode: int | None = None
    ) -> FileInfo | FileRefused:
        """A file of any size, of which neither side holds more than a piece; there whole in one step, or not at all."""
        ...

    def download(self, path: str, take: Callable[[bytes], object], *, offset: int = 0) -> FileInfo | FileRefused:
        """A file of any size, piece by piece; CONFLICT where it changed meanwhile, and what was taken is then void."""
        ...

    def manifest(self) -> Manifest | FileRefused:
        """Every entry with its digest, for a diff. TOO_LARGE beyond 200,000 entries or 128 levels."""
        ...


class Attestation(Frozen):
    """What engine and kernel say of the running sandbox, read back after start; compared with what was asked."""

    network_interfaces: tuple[str, ...]
    tool_uid: int
    capabilities: tuple[str, ...]
    no_new_privileges: bool
    seccomp: str
    read_only_root: bool
    memory_bytes: int
    pids_limit: int
    runtime: str
    image: str
    disk_cap: str = "none"
    """What caps the workspace's bytes and inodes: `loop`, `tmpfs`, or `none` where nothing does."""
    environment: str = DOCKER
    """As `Surroundings.environment`."""
    enforced: tuple[str, ...] = ()
    """Sentences: what a weaker environment than a container does hold; empty for a container."""
    not_enforced: tuple[str, ...] = ()
    """Sentences: what it does not hold, and a person must know before work is trusted to it."""


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
    def files(self) -> Files:
        """Its workspace."""
        ...

    @property
    def processes(self) -> Processes:
        """Its execs: in the background, with a terminal, with stdin that comes bit by bit."""
        ...

    def exec(self, request: ExecRequest, on_output: OnOutput) -> ExecResult:
        """Run to the end. `on_output` is called in order, from this thread, before the result returns.

        The same (call, attempt) again joins the running exec or answers its stored result; it never runs twice.

        Raises:
            SandboxGone: the sandbox ended or cannot be reached; whether the exec ran is unknown.
            StaleGeneration: a newer worker owns the sandbox.
        """
        ...

    def cancel(self, call: str, attempt: int) -> bool:
        """End that exec's tree; True when the runner confirms that nothing of it lives. False: no such exec."""
        ...

    def acknowledge(self, call: str, attempt: int) -> None:
        """The result is committed: the runner may forget its spool."""
        ...

    def snapshot(self) -> Iterator[bytes]:
        """The workspace as a tar, piece by piece. Every tool stands still until it is over or closed; execs are refused.

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


class Gone(Frozen):
    """There is no such sandbox any more."""

    owner: str
    reason: str


class Swept(Frozen):
    """What a sweep removed."""

    containers: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()


class Sandboxes(Protocol):
    """Makes, finds and removes sandboxes on one host."""

    @property
    def surroundings(self) -> Surroundings:
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
        """Freeze every process of it; nothing may be asked of it before `resume`. Doing it twice is no error.

        A driver that cannot may do nothing: what is promised is that nothing is lost, not what it saves.

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
