"""Execs of the sandbox port: requests, results, output and process control. Re-exported by `port`."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Literal, Protocol

from pydantic import Field

from codesdk.domain.model import FrozenModel
from codesdk.sandbox.egress.rules import DENY_ALL, EgressRules
from codesdk.sandbox.port.files import FileFingerprint

Stream = Literal["stdout", "stderr"]


class Pty(FrozenModel):
    """A terminal's size in characters."""

    rows: int = Field(default=24, ge=1, le=4096)
    cols: int = Field(default=80, ge=1, le=4096)


class ProcessLimits(FrozenModel):
    """Limits for one exec, named as in the profile. They can only lower the sandbox's limits."""

    memory_bytes: int | None = None
    """Per process."""
    pids: int | None = None
    """Number of processes in the whole sandbox above which this exec can't fork."""
    open_files: int | None = None
    file_bytes: int | None = None


class ExecRequest(FrozenModel):
    """One process tree to run."""

    call: str
    """With `attempt`, the idempotency key: the runner runs each at most once."""
    attempt: int = Field(default=1, ge=1)
    taken_up: bool = False
    """An earlier worker may have started it: a cancel then has to ask the runner."""
    argv: tuple[str, ...] = Field(min_length=1)
    cwd: str = "."
    """Relative to the workspace."""
    env: dict[str, str] = {}
    stdin: bytes = b""
    stdin_open: bool = False
    """Keep stdin open for `Processes.write`; otherwise it is closed after `stdin`."""
    flow: bool = False
    """Flow control for stdout: an `output` call frees everything before its offset, nothing is dropped, and the program
    blocks when it is `keep_bytes` ahead of the reader. Stderr keeps its tail. For protocols over stdio; only with
    `Processes.start`."""
    pty: Pty | None = None
    """Run it in a terminal: all output is one raw stream, stdout; stdin is keyboard input."""
    egress: EgressRules = DENY_ALL
    """Hosts that this exec may reach, at most those of the profile; pass `profile.egress` to allow them all."""
    limits: ProcessLimits = ProcessLimits()
    bound: tuple[FileFingerprint, ...] = ()
    """Files that must match these fingerprints; checked right before the start while other tools are frozen."""
    timeout_s: float = Field(default=60.0, gt=0)
    """Wall time in seconds; then TERM and, after the profile's grace, KILL to the whole tree."""
    keep_bytes: int = Field(default=16 * 1024 * 1024, ge=0)
    """Bytes kept per stream, half head and half tail; dropped bytes are counted."""


class ExitKind(StrEnum):
    """How a process tree ended, from evidence of kernel and runner, never inferred from the exit code."""

    EXITED = "exited"
    SIGNALED = "signaled"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    OOM_KILLED = "oom_killed"
    DISK_FULL = "disk_full"
    """The tree was killed because the workspace exceeded its quota. Only with a counted quota; else the write fails."""
    FILES_CHANGED = "files_changed"
    """Not started: a file doesn't match `bound`; `error` names it."""
    SPAWN_FAILED = "spawn_failed"


class OutputCount(FrozenModel):
    """Byte counts of one stream."""

    bytes: int = 0
    dropped: int = 0
    gap: int = 0
    """Offset of the first dropped byte; the head before it and the tail were kept."""


class ExecResult(FrozenModel):
    """How an exec ended."""

    kind: ExitKind
    exit_code: int | None = None
    """Exit code of the first process, if it exited; also set with timed_out, cancelled and oom_killed."""
    signal: int | None = None
    """Signal that killed the first process, if any."""
    error: str = ""
    """Why the exec didn't start."""
    duration_s: float = 0.0
    cpu_s: float = 0.0
    """CPU seconds of the whole tree."""
    max_rss_kb: int = 0
    """Peak RSS of the largest process; at least the runner's own (about 10 MB), because processes are forked from it."""
    oom_kills: int = 0
    """OOM kills in the sandbox during the exec; with concurrent execs they may be another's."""
    stdout: OutputCount = OutputCount()
    stderr: OutputCount = OutputCount()


class Chunk(FrozenModel):
    """A piece of output. Offsets count raw bytes of the stream, so repeated chunks can be detected."""

    stream: Stream
    offset: int
    data: bytes


OnOutput = Callable[[Chunk], None]


class Process(FrozenModel):
    """State of an exec: running, or ended and not yet acknowledged."""

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
    """Output from `offset`, which is higher than requested if bytes in between were dropped."""

    offset: int
    data: bytes
    seen: int
    """Bytes written to the stream so far."""
    over: bool
    """Whether the exec has ended and all output was returned."""


class Input(FrozenModel):
    """State of an exec's stdin."""

    offset: int
    """Bytes accepted since the start."""
    open: bool
    """Whether it accepts more."""


class Processes(Protocol):
    """Background execs. Stop one with `Sandbox.cancel`, drop its stored output with `Sandbox.acknowledge`.

    An exec runs until it exits, `timeout_s` is over, or the sandbox ends. When its first process exits, the rest of the
    tree is killed, so run servers in the foreground of their exec.
    """

    def start(self, request: ExecRequest) -> Process:
        """Start an exec and return at once. Idempotent per (call, attempt): a repeat returns the current state.

        Raises:
            SandboxGone, StaleGeneration: as `Sandbox.exec`.
        """
        ...

    def list(self) -> tuple[Process, ...]:
        """All unacknowledged execs, including those of `Sandbox.exec`, oldest first."""
        ...

    def output(
        self, call: str, attempt: int, stream: Stream, offset: int, *, length: int = 65_536, wait_s: float = 0.0
    ) -> Output | None:
        """Read up to `length` bytes from `offset`; waits up to `wait_s` (at most 20) for output. None: no such exec."""
        ...

    def write(self, call: str, attempt: int, data: bytes, *, end: bool = False, wait_s: float = 20.0) -> Input | None:
        """Write to stdin of an exec with `stdin_open` or a terminal. `end` closes it; in a terminal it types Ctrl-D.

        Returns when everything was accepted, stdin was closed, or the tool read nothing for `wait_s`; compare the
        offset. None: no such exec.
        """
        ...

    def signal(self, call: str, attempt: int, number: int) -> bool:
        """Send a signal to the whole tree. False: it isn't running, or is being ended."""
        ...

    def resize(self, call: str, attempt: int, size: Pty) -> bool:
        """Resize the terminal. False: there is none."""
        ...
