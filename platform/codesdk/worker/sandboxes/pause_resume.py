"""Stops a session's sandbox while keeping its workspace, and starts it again (ADR 29).

The row's state shows the progress: `stopping` (requested), `halting` (no call runs any more), `stopped`, `starting`. Each
step is idempotent, so the next worker repeats what a killed one left unfinished. A new runner knows no earlier call, so it
is created only once the row shows that no call runs in the old one.
"""

from __future__ import annotations

import logging
from typing import Any

from codesdk.domain.clock import Clock
from codesdk.domain.execution import ToolExecutionEnv
from codesdk.domain.payloads import SandboxFailed, SandboxHalted, SandboxStarted
from codesdk.errors import Fault
from codesdk.eventlog.log import EventLog
from codesdk.sandbox.port import Sandbox, Sandboxes, SandboxSpec
from codesdk.sandbox.port.faults import SandboxGone, StopRefused
from codesdk.sandbox.records import store
from codesdk.sandbox.records.store import SandboxRow, SandboxState
from codesdk.storage.writer import Unit, Writer
from codesdk.worker.sandboxes.events import sandbox_event

_log = logging.getLogger(__name__)


class SandboxPauser:
    """Call with the session's lock held, so that no call reaches the sandbox."""

    def __init__(self, *, sandboxes: Sandboxes, writer: Writer, log: EventLog, clock: Clock) -> None:
        self._sandboxes = sandboxes
        self._writer = writer
        self._log = log
        self._clock = clock

    def begin(self, row: SandboxRow, live: Sandbox | None) -> bool:
        """Begin the stop and cancel background processes. False: a call runs by now, and the stop was withdrawn."""
        if row.state is SandboxState.STOPPING and not self._writer.run(
            lambda unit: store.begin_stop(unit.connection, row.id)
        ):
            _log.info("sandbox %s is not stopped: a call, or a start, came first", row.id)
            self.withdraw(row)
            return False
        if live is not None:
            try:
                for process in live.processes.list():
                    if process.result is None:
                        live.cancel(process.call, process.attempt)
            except Fault as fault:
                _log.info("what runs in sandbox %s was not asked to end: %s", row.id, fault)
        return True

    def withdraw(self, row: SandboxRow) -> None:
        """Withdraw a stop that has not begun."""
        before, after = (SandboxState.STOPPING,), SandboxState.READY
        self._writer.run(lambda unit: store.change_state(unit.connection, row.id, before, after))

    def stop(self, row: SandboxRow) -> None:
        """Stop it and record that.

        Raises:
            Fault: it could not be stopped. The row stays `halting`.
        """
        try:
            self._sandboxes.stop(row.id)
        except StopRefused as refused:
            failed = self._failure_event(row, refused)
            self._writer.run(lambda unit: self._move(unit, row, SandboxState.HALTING, SandboxState.READY, failed))
            return
        except SandboxGone as gone:
            before, closing, why = (SandboxState.HALTING,), SandboxState.CLOSING, gone.reason
            self._writer.run(lambda unit: store.change_state(unit.connection, row.id, before, closing, reason=why))
            return
        halted = SandboxHalted(sandbox_id=row.id, execution_env=self._environment)
        self._writer.run(lambda unit: self._move(unit, row, SandboxState.HALTING, SandboxState.STOPPED, halted))

    def start(self, row: SandboxRow, spec: SandboxSpec) -> Sandbox | None:
        """Start it again. None: the session was closed meanwhile, and the sandbox must be removed.

        Raises:
            SandboxGone: nothing is left to start.
            Fault: it did not start. The workspace is unchanged and the row stays `starting`.
        """
        starting = SandboxState.STARTING
        if not self._writer.run(
            lambda unit: store.change_state(unit.connection, row.id, store.STOPPED_STATES, starting)
        ):
            return None
        try:
            sandbox = self._sandboxes.start(spec)
        except SandboxGone:
            raise
        except Fault as fault:
            failed = self._failure_event(row, fault)
            self._writer.run(lambda unit: self._log.append(unit, sandbox_event(row, failed)))
            raise
        attestation = sandbox.attestation
        started = SandboxStarted(
            sandbox_id=row.id, image=row.image, attestation=attestation, execution_env=self._environment
        )
        values = {
            "attestation": attestation.model_dump_json(),
            "active_at": self._clock.now().timestamp(),
            "runner": sandbox.runner,
        }
        if self._writer.run(lambda unit: self._move(unit, row, starting, SandboxState.READY, started, **values)):
            return sandbox
        sandbox.close()
        return None

    def _move(
        self,
        unit: Unit,
        row: SandboxRow,
        before: SandboxState,
        after: SandboxState,
        event: SandboxHalted | SandboxStarted | SandboxFailed,
        **values: Any,
    ) -> bool:
        if not store.change_state(unit.connection, row.id, (before,), after, **values):
            return False
        self._log.append(unit, sandbox_event(row, event))
        return True

    def _failure_event(self, row: SandboxRow, fault: Fault) -> SandboxFailed:
        return SandboxFailed(sandbox_id=row.id, code=fault.code, reason=fault.message, execution_env=self._environment)

    @property
    def _environment(self) -> ToolExecutionEnv:
        return ToolExecutionEnv(self._sandboxes.execution_environment.environment)
