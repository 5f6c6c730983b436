"""The port's execs: what is run, what comes of it, and what may be asked meanwhile. `port` gives these names on."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Literal, Protocol

from pydantic import Field

from codesdk.domain.decisions import FrozenModel
from codesdk.sandbox.egress.rules import DENY_ALL, EgressRules
from codesdk.sandbox.port.files import FileFingerprint

Stream = Literal["stdout", "stderr"]


class Pty(FrozenModel):
    """A terminal's size in characters."""

    rows: int = Field(default=24, ge=1, le=4096)
    cols: int = Field(default=80, ge=1, le=4096)


class ProcessLimits(FrozenModel):
    """Limits for the processes of one exec, by the names of the profile's. They only lower what the sandbox allows."""

    memory_bytes: int | None = None
    """For each process alone."""
    pids: int | None = None
    """Processes of the whole sandbox, its own included, beyond which this exec starts no more."""
    open_files: int | None = None
    file_bytes: int | None = None


class ExecRequest(FrozenModel):
    """One process tree to run."""

    call: str
    """With `attempt`, the identity that the runner runs at most once."""
    attempt: int = Field(default=1, ge=1)
    taken_up: bool = False
    """An earlier worker may have begun it: a cancel then waits for what its runner says."""
    argv: tuple[str, ...] = Field(min_length=1)
    cwd: str = "."
    """Relative to the workspace."""
    env: dict[str, str] = {}
    stdin: bytes = b""
    stdin_open: bool = False
    """More follows by `Processes.write`; otherwise stdin is at its end after `stdin`."""
    flow: bool = False
    """Its stdout is handed over instead of kept: what lies before the offset of an `output` is forgotten, nothing is
    dropped, and a program that is `keep_bytes` ahead of its reader waits. Its stderr keeps its end. For conversations;
    only with `Processes.start`."""
    pty: Pty | None = None
    """Run it in a terminal: its output is one raw stream, stdout, and stdin is what is typed."""
    egress: EgressRules = DENY_ALL
    """Hosts that this exec may reach, within those of the profile; `profile.egress` itself for all of them."""
    limits: ProcessLimits = ProcessLimits()
    bound: tuple[FileFingerprint, ...] = ()
    """Files that must be found as they are here: looked at just before the start, while no other tool runs."""
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
    DISK_FULL = "disk_full"
    """The workspace passed its cap, where counting holds it: the tree was killed. Elsewhere a write fails instead."""
    FILES_CHANGED = "files_changed"
    """Nothing was started: a file is not as `bound` says; `error` names it."""
    SPAWN_FAILED = "spawn_failed"


class OutputCount(FrozenModel):
    """Accounting of one stream."""

    bytes: int = 0
    dropped: int = 0
    gap: int = 0
    """Offset of the first dropped byte; what was kept stands before it and at the end of the stream."""


class ExecResult(FrozenModel):
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


class Chunk(FrozenModel):
    """A piece of output. Offsets count the raw bytes of that stream, so a repeated chunk can be recognised."""

    stream: Stream
    offset: int
    data: bytes


OnOutput = Callable[[Chunk], None]


class Process(FrozenModel):
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


class Output(FrozenModel):
    """Output of an exec from `offset`, which is later than asked where the bytes between were dropped."""

    offset: int
    data: bytes
    seen: int
    """Bytes that the stream has had so far."""
    over: bool
    """The exec has ended: nothing more comes."""


class Input(FrozenModel):
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
