"""An in-memory `Sandboxes` for unit tests, with scripted execs.

Keeps the port's promises about identity (an attempt runs once, a stale generation is refused, destroyed stays
destroyed) and files (atomic batches, preconditions, nothing outside the workspace). Proves nothing about isolation,
process trees, limits, signals or real programs; those are tested on the real drivers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from itertools import count

from codesdk.sandbox.channel.execs import CancelledCalls, EngineOutage, ExecLocks
from codesdk.sandbox.fake.files import FakeFiles
from codesdk.sandbox.fake.processes import FakeProcesses, Run, Script, finish_run
from codesdk.sandbox.port import (
    Attestation,
    ExecRequest,
    ExecResult,
    ExecutionEnvironment,
    ExitKind,
    FileRefused,
    OnOutput,
    SandboxMissing,
    SandboxSpec,
    SweepResult,
)
from codesdk.sandbox.port.faults import (
    AlreadyAcknowledged,
    EngineUnavailable,
    ImageMissing,
    SandboxGone,
    SandboxPaused,
    StaleGeneration,
)

_RUNNERS = count(1)


class FakeState:
    """State of one fake sandbox, which outlives workers as a real one's runner does."""

    def __init__(self, spec: SandboxSpec) -> None:
        self.spec = spec
        self.runner = f"{spec.owner}-{next(_RUNNERS)}"
        self.keeps = True
        """Whether the workspace outlives what runs in it."""
        self.was_sent = False
        """Whether it carried out a file operation during which it ended."""
        self.generation = spec.generation
        self.files = FakeFiles(spec.profile)
        self.runs: dict[tuple[str, int], Run] = {}
        self.acknowledged: set[tuple[str, int]] = set()
        self.gone = ""
        self.paused = False
        self.lock = threading.Lock()


__all__ = ("FakeSandbox", "FakeSandboxes", "Script", "scripts")

ScriptFor = Callable[[ExecRequest], Script | None]


def scripts(table: dict[tuple[str, ...], Script]) -> ScriptFor:
    """Scripts by exact argv."""
    return lambda request: table.get(request.argv)


class FakeSandbox:
    """One worker's view of a fake sandbox."""

    def __init__(self, state: FakeState, owner: FakeSandboxes) -> None:
        self._state = state
        self._sandboxes = owner
        self._generation = state.generation
        self._exec_locks = ExecLocks()
        self._cancelled_calls = CancelledCalls()
        self._closed = False

    @property
    def owner(self) -> str:
        """The id it was opened for."""
        return self._state.spec.owner

    @property
    def attestation(self) -> Attestation:
        """An attestation that matches the spec."""
        spec = self._state.spec
        return Attestation(
            network_interfaces=("lo",),
            tool_uid=spec.tool_uid,
            capabilities=(),
            no_new_privileges=True,
            seccomp="filter",
            read_only_root=True,
            memory_bytes=spec.profile.memory_bytes,
            pids_limit=spec.profile.pids,
            runtime=spec.profile.runtime,
            image=spec.image,
        )

    @property
    def runner(self) -> str:
        """Boot id; new for each start."""
        return self._state.runner

    @property
    def files(self) -> FakeFiles:
        """The workspace."""
        try:
            self._check()
        except SandboxGone as gone:
            gone.was_sent = self._state.was_sent
            raise
        return self._state.files

    def files_of(self, call: str, attempt: int) -> FakeFiles:
        """The workspace for one call; refuses operations once it is cancelled."""
        self._cancelled_calls.check((call, attempt))
        return self.files

    def _check(self) -> None:
        if self._closed or self._state.gone:
            raise SandboxGone(self.owner, self._state.gone or "it was closed here")
        if self._state.paused:
            raise SandboxPaused(self.owner)
        if self._state.generation > self._generation:
            raise StaleGeneration(self.owner, self._generation, self._state.generation)

    @property
    def processes(self) -> FakeProcesses:
        """Background execs."""
        self._sandboxes.check_engine()
        self._check()
        return FakeProcesses(self)

    def exec(self, request: ExecRequest, on_output: OnOutput) -> ExecResult:
        """Play the script once; a repeat returns the stored result."""
        with self._exec_locks.acquire((request.call, request.attempt)) as exec_lock:
            if request.taken_up:
                exec_lock.mark_started()
            outage = EngineOutage(time.monotonic() + request.timeout_s, exec_lock)
            while self._sandboxes.engine_down:
                fault = EngineUnavailable("fake://engine", "connection refused")
                fault.was_sent = False
                outage.wait(fault)
            exec_lock.mark_started()
            return self._exec(request, on_output)

    def _exec(self, request: ExecRequest, on_output: OnOutput) -> ExecResult:
        try:
            run, first = self.claim_run(request)
        except SandboxGone as gone:
            gone.was_sent = False
            raise
        if first and run.script.hold is None:
            self.play_script(run)
        elif first:
            # What is held goes on when the connection is closed, as it does under a runner.
            threading.Thread(target=self.play_script, args=(run,), name="fake-exec", daemon=True).start()
        while not run.ended.wait(0.005):
            if self._closed:
                raise SandboxGone(self.owner, "it was closed here")
        if run.result is None:
            raise SandboxGone(self.owner, self._state.gone)
        for chunks in run.output:
            for chunk in chunks:
                on_output(chunk)
        return run.result

    def claim_run(self, request: ExecRequest, *, background: bool = False) -> tuple[Run, bool]:
        """The run of that attempt, and whether it is to be played now."""
        self._check()
        key = (request.call, request.attempt)
        with self._state.lock:
            if key in self._state.acknowledged:
                raise AlreadyAcknowledged(*key)
            run = self._state.runs.get(key)
            if run is not None:
                return run, False
            run = self._state.runs[key] = Run(request, background)
            self._sandboxes.runs.append((self.owner, *key))
            script = self._sandboxes.choose(request)
            run.script = script or Script(result=_failed(f"no script for {request.argv}"))
            run.feed_stdin(request.stdin)
            if not request.stdin_open and request.pty is None:
                run.input_ended.set()
            return run, True

    def runs(self) -> dict[tuple[str, int], Run]:
        """Unacknowledged runs."""
        self._check()
        return self._state.runs

    def play_script(self, run: Run) -> None:
        """Play it to its end."""
        script, kind = run.script, None
        if changed := self._changed(run.request):
            script = Script(result=ExecResult(kind=ExitKind.FILES_CHANGED, error=changed))
            finish_run(run, script, self._state.spec.profile.keep_output_bytes)
            return
        hold = run.input_ended if script.listens else script.hold
        if hold is not None:
            kind = self._hold(run, hold, run.request.timeout_s)
            script = run.script
        if self._state.gone:
            run.ended.set()
            return
        for path, content in script.writes.items():
            self._state.files.put(path, content)
        if script.listens:
            script = replace(script, stdout=script.stdout + bytes(run.answers))
        if kind is not None:
            script = replace(script, result=ExecResult(kind=kind, signal=9))
        finish_run(run, script, self._state.spec.profile.keep_output_bytes)

    def _changed(self, request: ExecRequest) -> str:
        found = self._state.files.marks(tuple(mark.name for mark in request.bound))
        assert not isinstance(found, FileRefused)  # noqa: S101 - a fake refuses no name
        return next(
            (f"{was.path} has changed" for was, now in zip(request.bound, found, strict=True) if was != now), ""
        )

    def _hold(self, run: Run, hold: threading.Event, timeout_s: float) -> ExitKind | None:
        deadline = time.monotonic() + timeout_s
        while not hold.wait(0.005):
            if self._state.gone:
                return None
            if run.released.is_set():
                return None
            if run.cancelled.is_set():
                return ExitKind.CANCELLED
            if time.monotonic() > deadline:
                return ExitKind.TIMED_OUT
        return None

    def cancel(self, call: str, attempt: int) -> bool:
        """End a held exec, or keep one that waits for the engine from starting."""
        self._cancelled_calls.add((call, attempt))
        if self._exec_locks.cancel_before_start((call, attempt)):
            return True
        self._sandboxes.check_engine()
        self._check()
        run = self._state.runs.get((call, attempt))
        if run is None:
            return False
        run.cancelled.set()
        return run.ended.wait(10)

    def acknowledge(self, call: str, attempt: int) -> None:
        """Forget an ended exec; it is never run again."""
        self._check()
        with self._state.lock:
            run = self._state.runs.get((call, attempt))
            if run is not None and run.result is not None:
                del self._state.runs[call, attempt]
                self._state.acknowledged.add((call, attempt))

    def snapshot(self) -> Iterator[bytes]:
        """The fake workspace as a tar."""
        self._check()
        return iter((self._state.files.pack(),))

    def restore(self, pieces: Iterable[bytes], *, replace: bool = False) -> int:
        """Unpack into the fake workspace."""
        self._check()
        return self._state.files.restore(b"".join(pieces), replace=replace)

    def import_tar(self, archive: bytes) -> int:
        """Unpack into the fake workspace."""
        self._check()
        return self._state.files.import_tar(archive)

    def close(self) -> None:
        """Close this view; the sandbox keeps running."""
        self._closed = True


def _failed(why: str) -> ExecResult:
    return ExecResult(kind=ExitKind.SPAWN_FAILED, error=why)


class FakeSandboxes:
    """Fake sandboxes, with hooks for what a test wants to happen."""

    execution_environment = ExecutionEnvironment()

    def __init__(self, choose: ScriptFor = lambda _: None, *, images: Collection[str] | None = None) -> None:
        """`choose`: script per exec, None: the spawn fails. `images`: existing images, None: any."""
        self.choose = choose
        self.images = images
        self.engine_down = False
        self.runs: list[tuple[str, str, int]] = []
        """(owner, call, attempt) of everything that ran, in order: at most once each."""
        self._states: dict[str, FakeState] = {}
        self._destroyed: set[str] = set()
        self._stopped: dict[str, FakeFiles] = {}

    def check_engine(self) -> None:
        """Raise EngineUnavailable while the engine is down."""
        if self.engine_down:
            raise EngineUnavailable("fake://engine", "connection refused")

    def open(self, spec: SandboxSpec) -> FakeSandbox:
        """Open a sandbox; see the port."""
        self.check_engine()
        if spec.owner in self._destroyed:
            raise SandboxGone(spec.owner, "it was destroyed")
        if self.images is not None and spec.image not in self.images:
            raise ImageMissing(spec.image)
        state = self._states.get(spec.owner)
        if state is not None and state.gone:
            self._states.pop(spec.owner)  # what failed to open is removed; a later open makes another
            raise SandboxGone(spec.owner, state.gone)
        if state is None:
            state = self._states[spec.owner] = FakeState(spec)
        if spec.generation < state.generation:
            raise StaleGeneration(spec.owner, spec.generation, state.generation)
        state.generation = spec.generation
        return FakeSandbox(state, self)

    def reattach(self, owner: str, generation: int) -> FakeSandbox | SandboxMissing:
        """Reattach; see the port."""
        self.check_engine()
        state = self._states.get(owner)
        if state is None or state.gone:
            return SandboxMissing(owner=owner, reason=state.gone if state else "there is no such container")
        if generation < state.generation:
            raise StaleGeneration(owner, generation, state.generation)
        state.generation = generation
        state.paused = False
        return FakeSandbox(state, self)

    def pause(self, owner: str) -> None:
        """Pause; see the port."""
        self._alive(owner).paused = True

    def resume(self, owner: str) -> None:
        """Resume; see the port."""
        self._alive(owner).paused = False

    def stop(self, owner: str) -> None:
        """Stop; see the port."""
        self.check_engine()
        if owner not in self._stopped:
            state = self._states.get(owner)
            if state is None or not state.keeps:
                raise SandboxGone(owner, state.gone if state else "there is no such container")
            state.gone = state.gone or "it was stopped"
            self._stopped[owner] = state.files

    def start(self, spec: SandboxSpec) -> FakeSandbox:
        """Start with the kept files; see the port."""
        if spec.owner in self._destroyed:
            raise SandboxGone(spec.owner, "it was destroyed")
        self.stop(spec.owner)
        state = self._states[spec.owner] = FakeState(spec)
        state.files = self._stopped.pop(spec.owner)
        return FakeSandbox(state, self)

    def _alive(self, owner: str) -> FakeState:
        self.check_engine()
        state = self._states.get(owner)
        if state is None or state.gone:
            raise SandboxGone(owner, state.gone if state else "there is no such container")
        return state

    def destroy(self, owner: str) -> None:
        """Destroy; see the port."""
        self.check_engine()
        self._destroyed.add(owner)
        self._remove(owner, "it was destroyed")

    def _remove(self, owner: str, reason: str) -> None:
        self._stopped.pop(owner, None)
        state = self._states.pop(owner, None)
        if state is not None:
            state.gone = reason

    def crash(
        self,
        owner: str,
        reason: str = "its container is exited (exit code 137)",
        *,
        keeps: bool = True,
        was_sent: bool = True,
    ) -> None:
        """Let a sandbox end by itself, as when its runner was killed for memory.

        `keeps`: its workspace survives. `was_sent`: whether later file operations count as sent to the runner.
        """
        state = self._states[owner]
        state.gone, state.keeps, state.was_sent = reason, keeps, was_sent

    def reboot(self, owner: str) -> None:
        """Let its runner end and another begin in its place, as when somebody restarts its container by hand."""
        before = self._states[owner]
        after = self._states[owner] = FakeState(before.spec)
        before.gone, after.files, after.generation = "its runner was restarted", before.files, before.generation

    def sweep(self, alive: Collection[str] | Callable[[], Collection[str]]) -> SweepResult:
        """Sweep; see the port."""
        self.check_engine()
        living = set(alive() if callable(alive) else alive)
        gone = tuple(sorted(set(self._states) - living))
        for owner in gone:
            self._remove(owner, "its owner is gone")
        return SweepResult(containers=gone, volumes=gone)

    @property
    def living(self) -> tuple[str, ...]:
        """Owners of existing sandboxes, for leak checks."""
        return tuple(sorted(self._states))

    def close(self) -> None:
        """No-op."""
