"""What a new worker finds of the one before: calls that are `running` in the database."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from codesdk.domain.calls import CallState
from codesdk.domain.decisions import Classification
from codesdk.domain.ids import SessionId
from codesdk.domain.tools import ToolResult
from codesdk.errors import Fault
from codesdk.eventlog.log import Log
from codesdk.hosts import store as host_store
from codesdk.registry import Registries, SourceCall, Tool, UnknownTool
from codesdk.sandbox.port import Sandbox
from codesdk.sandbox.profile import Profile
from codesdk.storage.database import Database
from codesdk.storage.writer import Unit, Writer
from codesdk.toolcalls import store
from codesdk.toolcalls.builtins import runs_one_exec
from codesdk.toolcalls.ending import complete
from codesdk.toolcalls.execution import Execution
from codesdk.toolcalls.lost import CODE as WORKER_LOST
from codesdk.toolcalls.stored import Claimed, StoredCall
from codesdk.worker.hand import Hand
from codesdk.worker.host import Host
from codesdk.worker.rooms import Rooms

_log = logging.getLogger(__name__)

LOST = (
    "The worker that ran this call died, and whether the call took effect is unknown. It was not run again. "
    "Look at the workspace before you repeat it."
)


NOT_BEGUN = "This call was not begun: meanwhile {what}."


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
        log: Log,
        confirm: Callable[[], None] = lambda: None,
    ) -> None:
        """`confirm`: raises where the host is not this worker's any more."""
        self._confirm = confirm
        self._host = host
        self._hand = hand
        self._rooms = rooms
        self._registry = registry
        self._execution = execution
        self._database = database
        self._writer = writer
        self._log = log

    def take_up(self, start: Callable[[Callable[[], None]], object] = lambda work: work()) -> int:
        """Go through the running calls; returns how many there were.

        `start` runs the work on each: the worker's threads, so that a long command holds up neither the others nor
        the start.

        The runner knows an exec by (call, attempt) and answers the same run, output whole. A file operation leaves no
        trace there: a reading one is simply done again, any other is reported as lost.
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
            self._take_up(stored, begun=begun)
        except Fault as fault:
            # One call that cannot be ended must not keep the worker from serving all others.
            _log.warning("call %s could not be taken up: %s", stored.identity.tool_call_id, fault)
        finally:
            self._hand.leave(stored.identity)

    def _take_up(self, stored: StoredCall, *, begun: bool) -> None:
        session = SessionId(stored.subject.session_id)
        try:
            tool = self._registry.of(stored.tenant_id).resolve(stored.call.name)
        except UnknownTool:
            self._end_lost(self._claim(stored, 0.0))
            return
        wall_s = Profile.model_validate(stored.profile).tighten(stored.obligations).wall_s
        claimed = self._claim(stored, min(tool.timeout_s, wall_s))
        if not begun and (what := _stands_against(stored, tool)):
            self._end(claimed.model_copy(update={"ran": False}), NOT_BEGUN.format(what=what), "NOT_BEGUN")
            return
        if not begun or (isinstance(tool.runs, SourceCall) and tool.classification is Classification.READ_ONLY):
            # Of a source: the server that had it is gone with its worker; another reads again.
            self._execution.run(claimed, partial(self._ready, session), self._confirm)
            return
        if runs_one_exec(tool) or tool.classification is Classification.READ_ONLY:
            try:
                sandbox = self._rooms.ready(session)
            except Fault as fault:
                _log.warning("call %s is lost with its sandbox: %s", stored.identity.tool_call_id, fault)
            else:
                self._run_again(claimed, sandbox)
                return
        self._end_lost(claimed)

    def _ready(self, session: SessionId) -> Sandbox:
        sandbox = self._rooms.ready(session)
        self._confirm()
        return sandbox

    def _claim(self, stored: StoredCall, timeout_s: float) -> Claimed:
        return Claimed(
            stored=stored,
            generation=self._host.generation,
            timeout_s=timeout_s,
            sandbox=self._rooms.surroundings.summary(timeout_s),
            environment=self._rooms.surroundings.environment,
        )

    def _run_again(self, claimed: Claimed, sandbox: Sandbox) -> None:
        self._execution.run(claimed, lambda: sandbox)

    def _end_lost(self, claimed: Claimed) -> None:
        self._end(claimed, LOST, WORKER_LOST)

    def _end(self, claimed: Claimed, text: str, code: str) -> None:
        result = ToolResult(text=text, is_error=True, code=code)

        def end(unit: Unit) -> None:
            complete(
                unit,
                self._log,
                claimed,
                result,
                result_ref=None,
                last_output=(),
                duration_ms=0.0,
            )

        self._execution.until_recorded(claimed, lambda: self._writer.run(end))


def _stands_against(stored: StoredCall, tool: Tool) -> str:
    """What happened between a claim and a first start that comes seconds later; empty where nothing did."""
    if stored.cancel_requested:
        return "it was cancelled"
    if not stored.session_open:
        return "its session ended"
    if stored.barred:
        return "its tenant was suspended, or who asked for it disabled"
    return "" if stored.schema_hash == tool.schema_hash else "the manifest of its tool changed"
