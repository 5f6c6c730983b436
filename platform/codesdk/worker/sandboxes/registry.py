"""Sandbox registry: this worker's live sandboxes, one per session."""

from __future__ import annotations

import logging
import math
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from codesdk.artifacts import ArtifactService
from codesdk.domain.calls import CallState
from codesdk.domain.clock import Clock
from codesdk.domain.execution import ToolExecutionEnv
from codesdk.domain.ids import SessionId
from codesdk.domain.payloads import SandboxStopped
from codesdk.errors import Fault
from codesdk.eventlog.log import EventLog
from codesdk.sandbox.port import ExecutionEnvironment, Sandbox, Sandboxes, SandboxSpec
from codesdk.sandbox.port.faults import EngineUnavailable, RunnerSilent, SandboxEnded, SandboxGone
from codesdk.sandbox.profiles.profile import Profile
from codesdk.sandbox.records import store
from codesdk.sandbox.records.store import SandboxRow, SandboxState
from codesdk.storage.database import Database
from codesdk.storage.writer import Unit, Writer
from codesdk.toolcalls.records import store as call_store
from codesdk.worker.ownership.registration import OwnedHost
from codesdk.worker.sandboxes.create import SandboxCreator
from codesdk.worker.sandboxes.events import sandbox_event
from codesdk.worker.sandboxes.pause_resume import SandboxPauser
from codesdk.worker.sandboxes.reattach import STOPPED_MESSAGE, SandboxReattacher
from codesdk.worker.sandboxes.reconciliation import Reconciler, RemovalProgress

_log = logging.getLogger(__name__)

RETRY_S = 10.0
"""Seconds before reconciliation retries a sandbox that failed to open."""

GRACE_S = 3.0
"""Seconds that running calls of a closed session have to end. A cancel takes two."""


class RemovalGrace:
    """Delays the removal of a closed session's sandbox while its calls end. Use with the session's lock held."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._since: dict[str, float] = {}

    def should_wait(self, row: SandboxRow) -> bool:
        """Whether to delay the removal until the next pass.

        Raises:
            StorageUnavailable: unknown.
        """
        now = self._clock.monotonic()
        if now - self._since.setdefault(row.id, now) >= GRACE_S:
            return False
        with self._database.read() as connection:
            return bool(call_store.list_in_state(connection, CallState.RUNNING, session=row.session_id))

    def forget(self, row: SandboxRow) -> None:
        """Forget a removed sandbox."""
        self._since.pop(row.id, None)


class SandboxRegistry:
    """Finds, opens and closes sandboxes. Thread-safe."""

    def __init__(
        self,
        *,
        sandboxes: Sandboxes,
        host: OwnedHost,
        instance: str,
        database: Database,
        writer: Writer,
        log: EventLog,
        artifacts: ArtifactService,
        clock: Clock,
        confirm: Callable[[], None] = lambda: None,
    ) -> None:
        """`confirm`: raises if the host is no longer this worker's."""
        self._confirm = confirm
        self._before_removal: Callable[[SandboxRow, Sandbox], None] = lambda *_: None
        self._sandboxes = sandboxes
        self._host = host
        self._instance = instance
        self._database = database
        self._writer = writer
        self._log = log
        self._clock = clock
        self._reattacher = SandboxReattacher(sandboxes=sandboxes, host=host, writer=writer, log=log, confirm=confirm)
        self._creator = SandboxCreator(sandboxes=sandboxes, artifacts=artifacts, writer=writer, log=log, clock=clock)
        self._stopper = SandboxPauser(sandboxes=sandboxes, writer=writer, log=log, clock=clock)
        self._removal_grace = RemovalGrace(database, clock)
        self._live: dict[str, Sandbox] = {}
        self._paused: dict[str, Sandbox] = {}
        self._guards: defaultdict[str, threading.RLock] = defaultdict(threading.RLock)
        self._not_before: dict[str, float] = {}
        self._reconciler = Reconciler(
            host=host, database=database, guards=self._guards, start=self._try_open, end=self._end
        )

    def ready(self, session: SessionId) -> Sandbox:
        """Return the session's sandbox; open, reattach, resume or start it if necessary.

        Raises:
            SandboxEnded: it is gone or closing.
            Fault: the engine could not open it.
        """
        with self._guards[session]:
            return self._live.get(session) or self._acquire(session)

    def begin(self, session: SessionId) -> Sandbox:
        """As `ready`, for a call that starts now. Confirms the host last, as close to the start as possible."""
        sandbox = self.ready(session)
        self._confirm()
        return sandbox

    def reach(self, session: SessionId) -> Sandbox:
        """As `ready`, for work other than calls: does not start a stopped sandbox.

        Raises:
            SandboxEnded: it is stopped; also as in `ready`.
        """
        with self._guards[session]:
            if (row := self._row(session)) is not None and row.state in (SandboxState.STOPPING, *store.STOPPED_STATES):
                raise SandboxEnded(STOPPED_MESSAGE)
            return self._live.get(session) or self._acquire(session, starts=False)

    def _row(self, session: SessionId) -> SandboxRow | None:
        with self._database.read() as connection:
            return store.of_session(connection, session)

    def on_removal(self, callback: Callable[[SandboxRow, Sandbox], None]) -> None:
        """Call `callback` with a closed session's live sandbox before its removal. It must not raise."""
        self._before_removal = callback

    @contextmanager
    def hold_calls(self, session: SessionId) -> Iterator[None]:
        """Block new calls in the session's sandbox for the duration of the block. They wait in `ready`."""
        with self._guards[session]:
            yield

    @property
    def execution_environment(self) -> ExecutionEnvironment:
        """Where the sandboxes run."""
        return self._sandboxes.execution_environment

    def live(self, session: SessionId) -> Sandbox | None:
        """The session's sandbox if this worker has it open."""
        return self._live.get(session)

    def forget(self, session: SessionId) -> None:
        """Drop a failed connection. The next `ready` reattaches, or finds that the sandbox is gone."""
        with self._guards[session]:
            held = self._live.pop(session, None) or self._paused.pop(session, None)
        if held is not None:
            held.close()

    def lose(self, session: SessionId, sandbox: Sandbox) -> bool:
        """Check a sandbox that was reported gone and update its row. False: nothing is left of it.

        `sandbox`: the one that failed. If another has replaced it, there is nothing to do. If it answers, or its engine
        doesn't, the connection is kept for other calls in it.
        """
        if not _may_be_alive(sandbox):  # outside the lock: a runner that hangs blocks for long
            with self._guards[session]:
                if self._live.get(session) in (None, sandbox):
                    self.forget(session)
                    try:
                        self.reach(session)
                    except Fault as fault:
                        _log.warning("the sandbox of session %s: %s", session, fault)
        try:
            row = self._row(session)
        except Fault as fault:
            _log.warning("what there is of the sandbox of session %s is not known: %s", session, fault)
            return True
        return row is not None and row.state not in (SandboxState.CLOSING, SandboxState.GONE)

    def pause(self, row: SandboxRow, idle_before: float) -> bool:
        """Pause a sandbox that has been idle since `idle_before`. The next `ready` resumes it.

        False: it was used meanwhile.

        Raises:
            Fault: the engine did not pause it. It counts as paused but runs until the next call.
        """
        with self._guards[row.session_id]:
            # The row first: resuming a sandbox that runs costs nothing.
            if not self._writer.run(lambda unit: store.pause(unit.connection, row.id, idle_before)):
                return False
            live = self._live.pop(row.session_id, None)
            if live is not None:
                self._paused[row.session_id] = live
            self._sandboxes.pause(row.id)
        return True

    def has_background_process(self, row: SandboxRow) -> bool:
        """Whether a background process runs in it. If so, the sandbox counts as used now.

        Raises:
            Fault: it is gone or does not answer.
        """
        sandbox = self.reach(row.session_id)
        try:
            processes = sandbox.processes.list()
        except SandboxGone:
            self.lose(row.session_id, sandbox)
            raise
        is_at_work = any(process.result is None for process in processes)
        if is_at_work:
            self._writer.run(lambda unit: store.record_activity(unit.connection, row.id, self._now()))
        return is_at_work

    def reconcile(self) -> None:
        """Reconcile sandboxes with their rows. Called on every wake-up and poll."""
        self._reconciler.reconcile()

    def _end(self, row: SandboxRow) -> RemovalProgress:
        self._confirm()  # a successor may have changed the sandbox since this row was read
        if row.state is not SandboxState.CLOSING:
            return self._stop(row)
        if row.session_id in self._live and self._removal_grace.should_wait(row):
            return RemovalProgress.DEFERRED
        return self._remove(row)

    def sweep(self) -> None:
        """Remove every container and volume of this instance that has no living owner row."""
        swept = self._sandboxes.sweep(self._owners)
        if swept.containers or swept.volumes:
            _log.info("swept %d containers and %d volumes", len(swept.containers), len(swept.volumes))

    def close(self) -> None:
        """Disconnect from every sandbox. They live on for the next worker."""
        for session in [*self._live, *self._paused]:
            self.forget(SessionId(session))

    def _owners(self) -> list[str]:
        with self._database.read() as connection:
            return list(store.list_live(connection, self._host.id))

    def _try_open(self, row: SandboxRow) -> None:
        if self._clock.monotonic() < self._not_before.get(row.session_id, 0.0):
            return
        try:
            self.ready(row.session_id)
        except Fault as fault:
            _log.warning("the sandbox of session %s did not open: %s", row.session_id, fault)
            # A broken seed never gets better: endless retries would fill the session's log.
            pause_s = RETRY_S if fault.retryable else math.inf
            self._not_before[row.session_id] = self._clock.monotonic() + pause_s

    def _acquire(self, session: SessionId, *, starts: bool = True) -> Sandbox:
        """`starts`: start it if only its workspace is left."""
        self._confirm()  # a worker that was frozen and replaced must open nothing
        row = self._row(session)
        if row is None or row.state in (SandboxState.CLOSING, SandboxState.GONE):
            raise SandboxEnded("The session's sandbox has ended.", advice="Open another session.")
        sandbox: Sandbox | None = None
        match row.state:
            case SandboxState.WANTED:
                sandbox = self._creator.open(row, self._spec(row))
            case SandboxState.PAUSED:
                sandbox = self._reattacher.resume(row, self._paused.pop(session, None))
            case SandboxState.STOPPING:
                self._stopper.withdraw(row)  # the request for the sandbox wins over the stop
                sandbox = self._reattacher.reattach(row)
            case SandboxState.READY:
                sandbox = self._reattacher.reattach(row)
            case _:
                pass
        if sandbox is None and not starts:
            raise SandboxEnded(STOPPED_MESSAGE)
        sandbox = sandbox or self._start(row)
        self._live[session] = sandbox
        return sandbox

    def _spec(self, row: SandboxRow) -> SandboxSpec:
        profile = Profile.model_validate_json(row.profile)
        return self._host.spec(self._instance, row.id, image=row.image, profile=profile, uid=row.tool_uid)

    def _stop(self, row: SandboxRow) -> RemovalProgress:
        try:
            if self._stopper.begin(row, self._live.get(row.session_id)):
                self.forget(row.session_id)
                self._stopper.stop(row)
        except Fault as fault:
            _log.warning("sandbox %s could not be stopped yet: %s", row.id, fault)
            return RemovalProgress.FAILED
        return RemovalProgress.DONE

    def _start(self, row: SandboxRow) -> Sandbox:
        self.forget(row.session_id)
        try:
            sandbox = self._stopper.start(row, self._spec(row))
        except SandboxGone as gone:
            raise self._reattacher.mark_ended(row, gone.message) from gone
        if sandbox is None:
            self._sandboxes.destroy(row.id)
            raise SandboxEnded("The session was closed.", advice="Open another session.")
        return sandbox

    def _remove(self, row: SandboxRow) -> RemovalProgress:
        if (live := self._live.get(row.session_id)) is not None:
            self._before_removal(row, live)
        self.forget(row.session_id)
        try:
            self._sandboxes.destroy(row.id)
        except Fault as fault:
            _log.warning("sandbox %s could not be removed yet: %s", row.id, fault)
            return RemovalProgress.FAILED

        def mark(unit: Unit) -> None:
            if store.change_state(unit.connection, row.id, (SandboxState.CLOSING,), SandboxState.GONE):
                stopped = SandboxStopped(sandbox_id=row.id, reason=row.reason, execution_env=self._environment)
                self._log.append(unit, sandbox_event(row, stopped))

        self._writer.run(mark)
        self._removal_grace.forget(row)
        self._guards.pop(row.session_id, None)
        self._not_before.pop(row.session_id, None)
        return RemovalProgress.DONE

    def _now(self) -> float:
        return self._clock.now().timestamp()

    @property
    def _environment(self) -> ToolExecutionEnv:
        return ToolExecutionEnv(self.execution_environment.environment)


def _may_be_alive(sandbox: Sandbox) -> bool:
    """Whether the runner answers, or its state is unknown. Then waiting calls find out themselves."""
    try:
        sandbox.processes.list()
    except (EngineUnavailable, RunnerSilent):
        return True
    except Fault as fault:
        _log.info("sandbox %s does not answer: %s", sandbox.owner, fault)
        return False
    return True
