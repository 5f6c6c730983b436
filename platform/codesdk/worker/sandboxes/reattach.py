"""Reattaches a sandbox that was opened before: it runs, is paused, has only its workspace left, or is gone."""

from __future__ import annotations

import logging
from collections.abc import Callable

from codesdk.domain.execution import ToolExecutionEnv
from codesdk.domain.payloads import SandboxFailed
from codesdk.eventlog.log import EventLog
from codesdk.sandbox.port import Sandbox, Sandboxes, SandboxMissing
from codesdk.sandbox.port.faults import SandboxEnded, SandboxGone, StopRefused
from codesdk.sandbox.records import store
from codesdk.sandbox.records.store import SandboxRow, SandboxState
from codesdk.storage.writer import Unit, Writer
from codesdk.worker.ownership.registration import OwnedHost
from codesdk.worker.sandboxes.events import sandbox_event

_log = logging.getLogger(__name__)

STOPPED_MESSAGE = "The session's sandbox is stopped."
_CLOSED = "The session was closed."
_ADVICE = "Open another session."


class SandboxReattacher:
    """Call with the session's lock held."""

    def __init__(
        self, *, sandboxes: Sandboxes, host: OwnedHost, writer: Writer, log: EventLog, confirm: Callable[[], None]
    ) -> None:
        """`confirm`: raises if the host is no longer this worker's."""
        self._confirm = confirm
        self._sandboxes = sandboxes
        self._host = host
        self._writer = writer
        self._log = log

    def reattach(self, row: SandboxRow) -> Sandbox | None:
        """Reattach the running sandbox. None: only its workspace is left, which its row now records.

        Raises:
            SandboxEnded: nothing is left, or the session was closed.
            Fault: its state is unknown.
        """
        found = self._sandboxes.reattach(row.id, self._host.generation)
        if isinstance(found, SandboxMissing):
            self._mark_lost(row, found.reason)
            return None
        if self._writer.run(lambda unit: store.record_runner(unit.connection, row.id, found.runner)):
            _log.warning("the runner of sandbox %s was started again, and knows nothing of what ran before", row.id)
        return found

    def resume(self, row: SandboxRow, held: Sandbox | None) -> Sandbox | None:
        """Resume a paused sandbox. `held`: its connection, if still open. None: as `reattach`.

        Raises:
            SandboxEnded, Fault: as `reattach`.
        """
        try:
            self._sandboxes.resume(row.id)
        except SandboxGone as gone:
            self._mark_lost(row, gone.reason)
            return None
        sandbox = held or self.reattach(row)
        before, after = (SandboxState.PAUSED,), SandboxState.READY
        if sandbox is not None and not self._writer.run(
            lambda unit: store.change_state(unit.connection, row.id, before, after)
        ):
            sandbox.close()
            raise SandboxEnded(_CLOSED, advice=_ADVICE)
        return sandbox

    def mark_ended(self, row: SandboxRow, reason: str) -> SandboxEnded:
        """Mark a sandbox of which nothing is left for closing. Returns the fault for the caller."""
        before = (SandboxState.READY, SandboxState.PAUSED, SandboxState.STOPPING, *store.STOPPED_STATES)
        after = SandboxState.CLOSING
        self._writer.run(lambda unit: store.change_state(unit.connection, row.id, before, after, reason=reason))
        return SandboxEnded(f"The session's sandbox is gone: {reason}.", advice=_ADVICE)

    def _mark_lost(self, row: SandboxRow, reason: str) -> None:
        self._confirm()  # if the worker was frozen meanwhile, the sandbox may be its successor's
        try:
            self._sandboxes.stop(row.id)  # reports what is left, and ends a container that runs without answering
        except (SandboxGone, StopRefused) as nothing:
            raise self.mark_ended(row, reason) from nothing
        environment = ToolExecutionEnv(self._sandboxes.execution_environment.environment)
        failed = SandboxFailed(sandbox_id=row.id, code=SandboxGone.code, reason=reason, execution_env=environment)

        def mark(unit: Unit) -> bool:
            if not store.mark_container_lost(unit.connection, row.id):
                return False
            self._log.append(unit, sandbox_event(row, failed))
            return True

        if not self._writer.run(mark):
            raise SandboxEnded(_CLOSED, advice=_ADVICE)
        _log.warning("sandbox %s went away (%s); its workspace is kept", row.id, reason)
