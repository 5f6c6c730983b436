"""Recovery of calls that are `running` in the database while no thread runs them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from codesdk.domain.calls import CallState
from codesdk.domain.ids import SessionId
from codesdk.errors import Fault
from codesdk.hosts import store as host_store
from codesdk.registry import RegistryProvider, Tool, UnknownTool
from codesdk.sandbox.port import Sandbox
from codesdk.sandbox.records import store as sandbox_store
from codesdk.storage.database import Database
from codesdk.storage.faults import StorageUnavailable
from codesdk.storage.writer import Unit, Writer
from codesdk.toolcalls.claim import InFlightCalls
from codesdk.toolcalls.execution import Execution
from codesdk.toolcalls.records import store
from codesdk.toolcalls.records.call_record import CallRecord, ClaimedCall
from codesdk.toolcalls.retries.lost_calls import Loss
from codesdk.toolcalls.run import error_mapping
from codesdk.toolcalls.run.acquire import NotStarted
from codesdk.toolcalls.run.effective_limits import EffectiveLimits
from codesdk.tools import runs_one_exec
from codesdk.worker.ownership.registration import OwnedHost
from codesdk.worker.sandboxes.registry import SandboxRegistry

_log = logging.getLogger(__name__)

WORKER_DIED = "The worker that ran this call died."
SANDBOX_LOST = "The worker that ran this call died, and the sandbox that it ran in was lost."


class Recovery:
    """Resumes or ends each running call that no thread has: all of them at start, orphaned ones later."""

    def __init__(
        self,
        *,
        host: OwnedHost,
        sandbox_registry: SandboxRegistry,
        registry: RegistryProvider,
        execution: Execution,
        in_flight: InFlightCalls,
        database: Database,
        writer: Writer,
    ) -> None:
        self._host = host
        self._in_flight = in_flight
        self._sandbox_registry = sandbox_registry
        self._registry = registry
        self._execution = execution
        self._database = database
        self._writer = writer

    def take_up(self, start: Callable[[Callable[[], None]], object] = lambda work: work()) -> int:
        """Recover every running call of the host; returns their number.

        `start` schedules the work on each call, so that a long command blocks neither the others nor the start.

        The runner identifies an exec by (call, attempt), so its result and full output can still be collected. File
        operations and calls to external servers leave no such record: those attempts are lost.
        """
        running = self._running()
        self._in_flight.add(*(stored.identity for stored in running))
        for stored in running:
            start(partial(self._recover_and_release, stored, begun=True))
        return len(running)

    def _adopt(self, unit: Unit) -> None:
        # A worker that was frozen and replaced since it registered must not adopt its successor's calls.
        if host_store.is_current(unit.connection, self._host.id, self._host.generation):
            store.adopt(unit.connection, self._host.id, self._host.generation)

    def recover_orphaned(self, start: Callable[[Callable[[], None]], object] = lambda work: work()) -> None:
        """Recover this worker's running calls that no thread has.

        Their claim committed while its answer was lost, or their end could not be recorded in time. Polls don't find
        them: without this they would block their workspace until the worker restarts.
        """
        for orphan in self._in_flight.take_orphaned(self._running()):
            _log.warning("recovering call %s: it is running, and no thread has it", orphan.stored.identity.tool_call_id)
            start(partial(self._recover_and_release, orphan.stored, begun=orphan.begun))

    def _running(self) -> list[CallRecord]:
        """The host's running calls. Adopts those that an earlier worker claimed."""
        running = self._read()
        if any((stored.generation or 0) < self._host.generation for stored in running):
            self._writer.run(self._adopt)
            running = self._read()
        return [stored for stored in running if stored.generation == self._host.generation]

    def _read(self) -> list[CallRecord]:
        with self._database.read() as connection:
            return store.list_in_state(connection, CallState.RUNNING, host=self._host.id)

    def _recover_and_release(self, stored: CallRecord, *, begun: bool) -> None:
        try:
            (self._recover if begun else self._run_unstarted)(stored)
        except Fault as fault:
            # One call that cannot be ended must not stop the worker from serving the others.
            _log.warning("could not recover call %s: %s", stored.identity.tool_call_id, fault)
        finally:
            self._in_flight.discard(stored.identity)

    def _recover(self, stored: CallRecord) -> None:
        """Recover a call that may run, or may have run."""
        tool = self._tool(stored)
        claimed = self._claim(stored, tool)
        sandbox = self._sandbox_of(stored, tool) if tool is not None and runs_one_exec(tool) else Loss(WORKER_DIED)
        if isinstance(sandbox, Loss):
            self._execution.lose(claimed, sandbox)
        elif sandbox is None:
            self._run_unstarted(stored)  # which records why it must not start
        else:
            self._execution.run(
                claimed, lambda: sandbox, partial(self._sandbox_registry.lose, stored.subject.session_id)
            )

    def _run_unstarted(self, stored: CallRecord) -> None:
        """Run a call that was claimed seconds ago and has not started."""
        tool = self._tool(stored)
        claimed = self._claim(stored, tool).model_copy(update={"behaviour_hash": stored.behaviour_hash})
        if what := stored.blocked_by(tool) if tool is not None else "its tool is gone":
            refused = error_mapping.fault_result(NotStarted.because(what))
            self._execution.record(claimed.model_copy(update={"ran": False}), refused)
            return
        session = stored.subject.session_id
        self._execution.run(
            claimed, partial(self._sandbox_registry.begin, session), partial(self._sandbox_registry.lose, session)
        )

    def _tool(self, stored: CallRecord) -> Tool | None:
        try:
            return self._registry.of(stored.tenant_id).resolve(stored.call.name)
        except UnknownTool:
            return None

    def _sandbox_of(self, stored: CallRecord, tool: Tool) -> Sandbox | Loss | None:
        """The sandbox whose runner may know the call, or how the call was lost. None: it never started and must not start now."""
        session = SessionId(stored.subject.session_id)
        try:
            sandbox = self._sandbox_registry.ready(session)
        except (error_mapping.CallReleased, StorageUnavailable):
            raise  # the sandbox's state is unknown: retried later
        except Fault as fault:
            _log.warning("call %s is lost with its sandbox: %s", stored.identity.tool_call_id, fault)
            return Loss(
                f"{WORKER_DIED[:-1]}, and its sandbox cannot be had: {fault.message}", can_return=fault.retryable
            )
        with self._database.read() as connection:
            row = sandbox_store.of_session(connection, session)
        if row is None or row.lives != (stored.life or 0):
            return Loss(SANDBOX_LOST)
        if not stored.blocked_by(tool):
            return sandbox
        try:
            known = {(each.call, each.attempt) for each in sandbox.processes.list()}
        except Fault as fault:
            return Loss(
                f"{WORKER_DIED[:-1]}, and its sandbox cannot be asked: {fault.message}", can_return=fault.retryable
            )
        return sandbox if (stored.identity.tool_call_id, stored.identity.attempt) in known else None

    def _claim(self, stored: CallRecord, tool: Tool | None) -> ClaimedCall:
        limits = EffectiveLimits.of(stored.profile, tool, stored.obligations) if tool is not None else None
        timeout_s = min(tool.timeout_s, limits.profile.wall_s) if tool is not None and limits is not None else 0.0
        return ClaimedCall(
            stored=stored,
            generation=self._host.generation,
            limits=limits,
            timeout_s=timeout_s,
            sandbox=self._sandbox_registry.execution_environment.summary(timeout_s),
            environment=self._sandbox_registry.execution_environment.environment,
        )
