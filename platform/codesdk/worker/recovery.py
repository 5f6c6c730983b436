"""What a new worker finds of the one before: calls that are `running` in the database."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from codesdk.domain.calls import CallState
from codesdk.domain.ids import SessionId
from codesdk.errors import Fault
from codesdk.hosts import store as host_store
from codesdk.registry import Registries, Tool, UnknownTool
from codesdk.sandbox import store as sandbox_store
from codesdk.sandbox.port import Sandbox
from codesdk.sandbox.profile import Profile
from codesdk.storage.database import Database
from codesdk.storage.faults import StorageUnavailable
from codesdk.storage.writer import Unit, Writer
from codesdk.toolcalls import mishaps, store
from codesdk.toolcalls.builtins import runs_one_exec
from codesdk.toolcalls.entry import NotBegun
from codesdk.toolcalls.execution import Execution
from codesdk.toolcalls.lost import Loss
from codesdk.toolcalls.stored import Claimed, StoredCall
from codesdk.worker.hand import Hand
from codesdk.worker.host import Host
from codesdk.worker.rooms import Rooms

_log = logging.getLogger(__name__)

DIED = "The worker that ran this call died."
FORGOTTEN = "The worker that ran this call died, and the sandbox that it ran in was lost."


class Recovery:
    """Ends or takes up each running call that no thread has: when a worker starts, and later where one was lost."""

    def __init__(
        self,
        *,
        host: Host,
        rooms: Rooms,
        registry: Registries,
        execution: Execution,
        hand: Hand,
        database: Database,
        writer: Writer,
    ) -> None:
        self._host = host
        self._hand = hand
        self._rooms = rooms
        self._registry = registry
        self._execution = execution
        self._database = database
        self._writer = writer

    def take_up(self, start: Callable[[Callable[[], None]], object] = lambda work: work()) -> int:
        """Go through the running calls; returns how many there were.

        `start` runs the work on each: the worker's threads, so that a long command holds up neither the others nor
        the start.

        The runner knows an exec by (call, attempt) and answers the same run, output whole. Of a file operation, and of a
        call of somebody else's server, nobody remembers whether it was begun: such an attempt is lost.
        """
        running = self._running()
        self._hand.take(*(stored.identity for stored in running))
        for stored in running:
            start(partial(self._take_up_held, stored, begun=True))
        return len(running)

    def _adopt(self, unit: Unit) -> None:
        # Frozen since it registered, and replaced: then they are its successor's.
        if host_store.serves(unit.connection, self._host.id, self._host.generation):
            store.adopt(unit.connection, self._host.id, self._host.generation)

    def look_for_strays(self, start: Callable[[Callable[[], None]], object] = lambda work: work()) -> None:
        """Take up the running calls of this worker that none of its threads has.

        Such are those whose claim was committed while its answer was lost, and those whose end nobody could record in
        time. No poll finds them: they would run, and hold their workspace, until the worker is restarted.
        """
        for stray in self._hand.strays(self._running()):
            _log.warning("call %s runs, and nobody has it: it is taken up", stray.stored.identity.tool_call_id)
            start(partial(self._take_up_held, stray.stored, begun=stray.begun))

    def _running(self) -> list[StoredCall]:
        """The host's running calls, those adopted that a worker before this one has claimed."""
        running = self._read()
        if any((stored.generation or 0) < self._host.generation for stored in running):
            self._writer.run(self._adopt)
            running = self._read()
        return [stored for stored in running if stored.generation == self._host.generation]

    def _read(self) -> list[StoredCall]:
        with self._database.read() as connection:
            return store.in_state(connection, CallState.RUNNING, host=self._host.id)

    def _take_up_held(self, stored: StoredCall, *, begun: bool) -> None:
        try:
            (self._take_up if begun else self._begin)(stored)
        except Fault as fault:
            # One call that cannot be ended must not keep the worker from serving all others.
            _log.warning("call %s could not be taken up: %s", stored.identity.tool_call_id, fault)
        finally:
            self._hand.leave(stored.identity)

    def _take_up(self, stored: StoredCall) -> None:
        """It may run, or have run."""
        tool = self._tool(stored)
        claimed = self._claim(stored, tool)
        sandbox = self._sandbox_of(stored, tool) if tool is not None and runs_one_exec(tool) else Loss(DIED)
        if isinstance(sandbox, Loss):
            self._execution.lose(claimed, sandbox)
        elif sandbox is None:
            self._begin(stored)  # which says what stands against it
        else:
            self._execution.run(claimed, lambda: sandbox, partial(self._rooms.lose, stored.subject.session_id))

    def _begin(self, stored: StoredCall) -> None:
        """It was claimed seconds ago, and nobody has begun it."""
        tool = self._tool(stored)
        claimed = self._claim(stored, tool).model_copy(update={"behaviour_hash": stored.behaviour_hash})
        if what := stored.stands_against(tool) if tool is not None else "its tool is gone":
            refused = mishaps.failed(NotBegun.because(what))
            self._execution.record(claimed.model_copy(update={"ran": False}), refused)
            return
        session = stored.subject.session_id
        self._execution.run(claimed, partial(self._rooms.begin, session), partial(self._rooms.lose, session))

    def _tool(self, stored: StoredCall) -> Tool | None:
        try:
            return self._registry.of(stored.tenant_id).resolve(stored.call.name)
        except UnknownTool:
            return None

    def _sandbox_of(self, stored: StoredCall, tool: Tool) -> Sandbox | Loss | None:
        """Whose runner knows the call, if it was begun; or how it was lost. None: it was not begun, and is not to be now."""
        session = SessionId(stored.subject.session_id)
        try:
            sandbox = self._rooms.ready(session)
        except (mishaps.Released, StorageUnavailable):
            raise  # nothing is known of the sandbox: it is looked for again
        except Fault as fault:
            _log.warning("call %s is lost with its sandbox: %s", stored.identity.tool_call_id, fault)
            return Loss(f"{DIED[:-1]}, and its sandbox cannot be had: {fault.message}", can_return=fault.retryable)
        with self._database.read() as connection:
            row = sandbox_store.of_session(connection, session)
        if row is None or row.lives != (stored.life or 0):
            return Loss(FORGOTTEN)
        if not stored.stands_against(tool):
            return sandbox
        try:
            known = {(each.call, each.attempt) for each in sandbox.processes.list()}
        except Fault as fault:
            return Loss(f"{DIED[:-1]}, and its sandbox cannot be asked: {fault.message}", can_return=fault.retryable)
        return sandbox if (stored.identity.tool_call_id, stored.identity.attempt) in known else None

    def _claim(self, stored: StoredCall, tool: Tool | None) -> Claimed:
        wall_s = Profile.model_validate(stored.profile).tighten(stored.obligations).wall_s
        timeout_s = min(tool.timeout_s, wall_s) if tool is not None else 0.0
        return Claimed(
            stored=stored,
            generation=self._host.generation,
            timeout_s=timeout_s,
            sandbox=self._rooms.surroundings.summary(timeout_s),
            environment=self._rooms.surroundings.environment,
        )
