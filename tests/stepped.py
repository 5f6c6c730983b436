"""A database and sandboxes for schedules: each use is a step, and may fail there."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

from sqlalchemy.exc import OperationalError

from codesdk.domain.clock import ManualClock
from codesdk.sandbox.channel.execs import ExecLock
from codesdk.sandbox.fake.processes import finish_run
from codesdk.sandbox.fake.sandboxes import FakeSandbox, FakeSandboxes, Script
from codesdk.sandbox.port import Chunk, ExecRequest, ExecResult, ExitKind, OnOutput, Processes, SandboxMissing
from codesdk.sandbox.port.faults import EngineUnavailable, SandboxGone
from codesdk.storage.database import Database
from codesdk.storage.writer import Writer
from codesdk.toolcalls.run.output_log import DELTA_S
from tasks import Died, Process


class World(Protocol):
    """What they ask of a schedule."""

    chance: random.Random
    clock: ManualClock
    ran: Counter[tuple[str, int]]
    wrote: Counter[str]

    def pause(self, point: str) -> None: ...

    def made_by(self, what: str) -> None: ...

    def fate(self, process: Process) -> str: ...

    def kill(self, process: Process) -> None: ...


class SteppedWriter(Writer):
    """A writer whose commits are steps, and may go wrong. What follows a commit is done at once."""

    def __init__(self, database: Database, process: Process, world: World) -> None:
        super().__init__(database)
        self._world = world
        self._process = process
        self._threads_effects = self._effects
        self._effects = self  # type: ignore[assignment]

    def run(self, work: Callable[[Any], Any]) -> Any:
        world = self._world
        world.pause("before a commit")
        try:
            return super().run(work)
        finally:
            world.pause("after a commit")

    def put(self, effects: Any) -> None:
        if effects is None:
            self._threads_effects.put(None)
            return
        for effect in effects:
            effect()

    def get(self) -> Any:
        return self._threads_effects.get()

    def _commit_with_retry(self, jobs: Any) -> Any:
        world = self._world
        fate = world.fate(self._process)
        if fate == "refused":
            raise broken("the database is away")
        if fate == "killed before it":
            world.kill(self._process)
            raise Died
        group = super()._commit_with_retry(jobs)
        if fate == "answer lost":
            raise broken("the connection broke")
        if fate == "killed after it":
            world.kill(self._process)
            raise Died
        return group


def broken(why: str) -> OperationalError:
    return OperationalError(
        "COMMIT", None, Exception(f"{why}: server closed the connection"), connection_invalidated=True
    )


class SteppedSandbox:
    """A worker's view of a sandbox; what runs in it ends when the schedule says so."""

    def __init__(self, world: World, inner: FakeSandbox) -> None:
        self._world = world
        self._inner = inner
        self.owner = inner.owner
        self.runner = inner.runner
        self.attestation = inner.attestation
        self._exec_locks: dict[tuple[str, int], ExecLock] = {}

    def exec(self, request: ExecRequest, on_output: OnOutput) -> ExecResult:
        world, inner = self._world, self._inner
        world.pause(f"exec of {request.call}")
        self._wait_for_engine(request)
        try:
            run, first = inner.claim_run(request)
        except SandboxGone as gone:
            gone.was_sent = False
            raise
        if first:
            world.ran[request.call, request.attempt] += 1
        while run.result is None:
            world.pause(f"{request.call} runs")
            inner.taken_up()
            if run.result is None and (run.cancelled.is_set() or world.chance.random() < 0.4):
                inner.finish(run, cancelled=run.cancelled.is_set())
        for chunks in run.output:
            for chunk in chunks:
                half = len(chunk.data) // 2
                for offset, data in ((0, chunk.data[:half]), (half, chunk.data[half:])):
                    inner.taken_up()
                    world.clock.advance(DELTA_S)
                    on_output(Chunk(stream=chunk.stream, offset=chunk.offset + offset, data=data))
        return run.result

    def _wait_for_engine(self, request: ExecRequest) -> None:
        turn = self._exec_locks[request.call, request.attempt] = ExecLock((request.call, request.attempt))
        if request.taken_up:
            turn.mark_started()
        for _ in range(self._world.chance.randint(0, 6)):  # it is away for a moment, or for longer than anybody waits
            if self._world.sandboxes.inner.engine_down:
                self._world.pause(f"{request.call} waits for the engine")
                turn.pause(0)
        self._inner.reachable()
        turn.mark_started()

    @property
    def processes(self) -> Processes:
        self._world.pause("a list of execs")
        self._inner.taken_up()
        return self._inner.processes

    @property
    def files(self) -> SteppedFiles:
        return SteppedFiles(self._world, self._inner)

    def files_of(self, call: str, attempt: int) -> SteppedFiles:
        return SteppedFiles(self._world, self._inner, (call, attempt))

    def cancel(self, call: str, attempt: int) -> bool:
        self._world.pause(f"cancel of {call}")
        self._inner.withdraw(call, attempt)
        if (turn := self._exec_locks.get((call, attempt))) is not None and turn.cancel_before_start():
            return True
        self._inner.reachable()
        run = self._inner.runs().get((call, attempt))
        if run is None:
            return False
        run.cancelled.set()
        return True

    def acknowledge(self, call: str, attempt: int) -> None:
        self._world.pause(f"acknowledge {call}")
        self._inner.acknowledge(call, attempt)

    def close(self) -> None:
        self._inner.close()


class SteppedFiles:
    """File operations that count what they wrote. The sandbox looks at the worker's number at each of them."""

    def __init__(self, world: World, inner: FakeSandbox, key: tuple[str, int] = ("", 0)) -> None:
        self._world = world
        self._inner = inner
        self._key = key

    def write(self, writes: Any) -> Any:
        self._world.pause("before a write")
        self._inner.reachable()
        done = self._inner.files_of(*self._key).write(writes)
        for each in writes:
            self._world.wrote[each.path] += 1
        self._world.pause("after a write")
        return done

    def __getattr__(self, name: str) -> Any:
        def operation(*args: Any, **kwargs: Any) -> Any:
            self._world.pause(f"before {name}")
            self._inner.reachable()
            found = getattr(self._inner.files_of(*self._key), name)(*args, **kwargs)
            self._world.pause(f"after {name}")
            return found

        return operation


class _Inner(FakeSandbox):
    def taken_up(self) -> None:
        """Raise unless this is the sandbox's newest connection, and open."""
        self._check()

    def reachable(self) -> None:
        """Raise where the engine that carries what is asked is away: nothing is sent then."""
        try:
            self._sandboxes.check_engine()
        except EngineUnavailable as fault:
            fault.was_sent = False
            raise

    def withdraw(self, call: str, attempt: int) -> None:
        self._cancelled_calls.add((call, attempt))

    def finish(self, run: Any, *, cancelled: bool) -> None:
        ends = {"result": ExecResult(kind=ExitKind.CANCELLED, signal=9)} if cancelled else {}
        finish_run(run, Script(stdout=run.script.stdout, **ends), self._state.spec.profile.keep_output_bytes)


class SteppedSandboxes:
    """The engine: what lives in it outlives every worker."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.inner = FakeSandboxes(lambda request: Script(stdout=request.argv[-1].encode()))
        self.execution_environment = self.inner.execution_environment

    def _stepped(self, made: FakeSandbox | SandboxMissing) -> Any:
        if isinstance(made, SandboxMissing):
            return made
        return SteppedSandbox(self._world, _Inner(made._state, self.inner))

    def open(self, spec: Any) -> Any:
        self._world.made_by("opens a sandbox")
        return self._stepped(self.inner.open(spec))

    def reattach(self, owner: str, generation: int) -> Any:
        return self._stepped(self.inner.reattach(owner, generation))

    def stop(self, owner: str) -> None:
        self._world.made_by("stops a sandbox")
        self.inner.stop(owner)

    def start(self, spec: Any) -> Any:
        self._world.made_by("starts a sandbox")
        return self._stepped(self.inner.start(spec))

    def destroy(self, owner: str) -> None:
        self.inner.destroy(owner)

    def sweep(self, alive: Any) -> Any:
        return self.inner.sweep(alive)


class Patience:
    """The event on which an end waits that could not be recorded: a wait is a step here, and no time."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._set = False

    def set(self) -> None:
        self._set = True

    def is_set(self) -> bool:
        return self._set

    def wait(self, seconds: float) -> bool:
        self._world.clock.advance(seconds)
        self._world.pause("wait to record an end")
        return self._set
