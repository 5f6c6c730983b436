"""Execs of a fake sandbox, played from scripts."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

from codesdk.sandbox.port import (
    Chunk,
    ExecRequest,
    ExecResult,
    ExitKind,
    Input,
    Output,
    OutputCount,
    Process,
    Pty,
    Stream,
)

_NAMES: tuple[Stream, Stream] = ("stdout", "stderr")


@dataclass(frozen=True)
class Script:
    """Behaviour of one exec."""

    stdout: bytes = b""
    stderr: bytes = b""
    exit_code: int = 0
    result: ExecResult | None = None
    """The whole result instead, for ends other than an exit; its output counts are filled in."""
    writes: dict[str, bytes] = field(default_factory=dict)
    """Files it writes to the workspace."""
    hold: threading.Event | None = None
    """It runs until this is set, or until it is cancelled or times out (in real time)."""
    echo: bool = False
    """Echo stdin until EOF."""
    answer: Callable[[bytes], bytes] | None = None
    """Maps each piece of stdin to output; the exec runs until its stdin ends."""

    @property
    def listens(self) -> bool:
        """Whether it lives until its stdin ends."""
        return self.echo or self.answer is not None


@dataclass
class Run:
    """A scripted exec, running or ended."""

    request: ExecRequest
    background: bool = False
    started: float = field(default_factory=time.monotonic)
    script: Script = field(default_factory=Script)
    output: tuple[tuple[Chunk, ...], ...] = ()
    result: ExecResult | None = None
    typed: bytearray = field(default_factory=bytearray)
    answers: bytearray = field(default_factory=bytearray)
    """Output in answer to stdin."""
    read: int = 0
    """With flow control, the offset that the reader has reached; output before it is dropped."""
    input_ended: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)
    """Set when a signal ended it."""
    cancelled: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)

    def feed_stdin(self, data: bytes) -> None:
        """Add to stdin."""
        self.typed += data
        if self.script.echo:
            self.answers += data
        elif self.script.answer is not None and data:
            self.answers += self.script.answer(data)


class ScriptPlayer(Protocol):
    """What plays the scripts."""

    def claim_run(self, request: ExecRequest, *, background: bool = False) -> tuple[Run, bool]:
        """The run of that attempt, and whether it is to be played now."""
        ...

    def play_script(self, run: Run) -> None:
        """Play the script to its end."""
        ...

    def runs(self) -> dict[tuple[str, int], Run]:
        """What ran and is not acknowledged."""
        ...


class FakeProcesses:
    """The runs of a fake sandbox. Signals end a run or do nothing; a terminal has a size and nothing else."""

    def __init__(self, sandbox: ScriptPlayer) -> None:
        self._sandbox = sandbox

    def _find(self, call: str, attempt: int) -> Run | None:
        return self._sandbox.runs().get((call, attempt))

    def start(self, request: ExecRequest) -> Process:
        """Play the script on a thread."""
        run, first = self._sandbox.claim_run(request, background=True)
        if first:
            threading.Thread(target=self._sandbox.play_script, args=(run,), daemon=True).start()
        return _process(run)

    def list(self) -> tuple[Process, ...]:
        """Unacknowledged runs."""
        return tuple(_process(run) for run in self._sandbox.runs().values())

    def output(
        self, call: str, attempt: int, stream: Stream, offset: int, *, length: int = 65_536, wait_s: float = 0.0
    ) -> Output | None:
        """Output from an offset."""
        run = self._find(call, attempt)
        if run is None:
            return None
        deadline = time.monotonic() + wait_s
        while run.result is None and len(_output_of(run, stream)) <= offset and time.monotonic() < deadline:
            run.ended.wait(0.005)
        data, over = _output_of(run, stream), run.result is not None
        offset = min(offset, len(data))
        if run.request.flow and stream == "stdout":
            offset = run.read = max(offset, run.read)
        return Output(offset=offset, data=data[offset : offset + length], seen=len(data), over=over)

    def write(self, call: str, attempt: int, data: bytes, *, end: bool = False, wait_s: float = 20.0) -> Input | None:
        """Stdin; what is written is taken at once."""
        del wait_s
        run = self._find(call, attempt)
        if run is None:
            return None
        if not run.input_ended.is_set() and run.result is None:
            run.feed_stdin(data)
            if end:
                run.input_ended.set()
        return Input(offset=len(run.typed), open=not run.input_ended.is_set())

    def signal(self, call: str, attempt: int, number: int) -> bool:
        """Any signal that would end a program ends the run."""
        run = self._find(call, attempt)
        if run is None or run.result is not None:
            return False
        if number in (signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGHUP):
            run.script = replace(run.script, result=ExecResult(kind=ExitKind.SIGNALED, signal=number))
            run.released.set()
        return True

    def resize(self, call: str, attempt: int, size: Pty) -> bool:
        """Whether it has a terminal."""
        del size
        run = self._find(call, attempt)
        return run is not None and run.result is None and run.request.pty is not None


def _output_of(run: Run, stream: Stream) -> bytes:
    if stream == "stderr":
        return run.script.stderr
    return run.script.stdout + bytes(run.answers)


def _process(run: Run) -> Process:
    return Process(
        call=run.request.call,
        attempt=run.request.attempt,
        argv=run.request.argv,
        background=run.background,
        age_s=time.monotonic() - run.started,
        result=run.result,
        **{name: OutputCount(bytes=len(_output_of(run, name))) for name in _NAMES},
    )


def streams_of(script: Script) -> tuple[tuple[Stream, bytes], tuple[Stream, bytes]]:
    """What it prints, by stream."""
    return ("stdout", script.stdout), ("stderr", script.stderr)


def finish_run(run: Run, script: Script, most: int) -> None:
    """Let it end as the script says; `most`: bytes that are kept of each stream."""
    keep = min(run.request.keep_bytes, most)
    result = script.result or ExecResult(kind=ExitKind.EXITED, exit_code=script.exit_code)
    head = keep - keep // 2
    run.output = tuple(head_and_tail(name, data, keep) for name, data in streams_of(script))
    counts: dict[str, OutputCount] = {
        name: OutputCount(bytes=len(data), dropped=len(data) - keep, gap=head)
        if len(data) > keep and not (run.request.flow and name == "stdout")
        else OutputCount(bytes=len(data))
        for name, data in streams_of(script)
    }
    run.result = result.model_copy(update={**counts, "duration_s": time.monotonic() - run.started})
    run.ended.set()


def head_and_tail(name: Stream, data: bytes, keep: int) -> tuple[Chunk, ...]:
    """The beginning and the end, as the runner's spool keeps them."""
    tail = max(keep - keep // 2, len(data) - keep // 2)
    parts = ((0, data[: keep - keep // 2]), (tail, data[tail:]))
    return tuple(Chunk(stream=name, offset=offset, data=part) for offset, part in parts if part)
