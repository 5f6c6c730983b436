"""Creates a session's first sandbox and seeds its workspace."""

from __future__ import annotations

import logging
from typing import Any

from codesdk.artifacts import ArtifactService
from codesdk.domain.clock import Clock
from codesdk.domain.execution import ToolExecutionEnv
from codesdk.domain.ids import ArtifactId, SessionId
from codesdk.domain.payloads import SandboxFailed, SandboxSnapshotRestored, SandboxStarted
from codesdk.errors import Fault
from codesdk.eventlog.log import EventLog
from codesdk.sandbox.port import Sandbox, Sandboxes, SandboxSpec
from codesdk.sandbox.port.faults import IsolationDrift, SandboxEnded, SandboxGone
from codesdk.sandbox.records import store
from codesdk.sandbox.records.store import SandboxRow, SandboxState
from codesdk.storage.writer import Unit, Writer
from codesdk.toolcalls.records import call_events
from codesdk.worker.sandboxes.events import sandbox_event

_log = logging.getLogger(__name__)


class SandboxCreator:
    """Call with the session's lock held."""

    def __init__(
        self, *, sandboxes: Sandboxes, artifacts: ArtifactService, writer: Writer, log: EventLog, clock: Clock
    ) -> None:
        self._sandboxes = sandboxes
        self._artifacts = artifacts
        self._writer = writer
        self._log = log
        self._clock = clock

    def open(self, row: SandboxRow, spec: SandboxSpec) -> Sandbox:
        """Create the sandbox and record the outcome in its row and the session's log.

        Raises:
            SandboxEnded: the session was closed meanwhile.
            Fault: the engine could not open it.
        """
        try:
            sandbox = self._open_with_retry(spec, pooled=row.generation is not None)
            try:
                restored = self._seed_workspace(row, sandbox)
            except Fault:
                sandbox.close()
                raise
        except Fault as fault:
            failed = SandboxFailed(
                sandbox_id=row.id, code=fault.code, reason=fault.message, execution_env=self._environment
            )
            self._writer.run(lambda unit: self._log.append(unit, sandbox_event(row, failed)))
            raise
        attestation = sandbox.attestation
        started = SandboxStarted(
            sandbox_id=row.id, image=row.image, attestation=attestation, execution_env=self._environment
        )

        def mark(unit: Unit) -> bool:
            before, after = (SandboxState.WANTED,), SandboxState.READY
            values: dict[str, Any] = {
                "attestation": attestation.model_dump_json(),
                "ready_at": self._clock.now().timestamp(),
                "runner": sandbox.runner,
            }
            if not store.change_state(unit.connection, row.id, before, after, **values):
                return False
            self._log.append(unit, sandbox_event(row, started))
            if restored is not None:
                self._log.append(unit, sandbox_event(row, restored))
            return True

        if not self._writer.run(mark):
            # The session was closed while its sandbox was created: the close wins.
            sandbox.close()
            self._sandboxes.destroy(row.id)
            raise SandboxEnded("The session was closed.", advice="Open another session.")
        return sandbox

    def _open_with_retry(self, spec: SandboxSpec, *, pooled: bool) -> Sandbox:
        try:
            return self._sandboxes.open(spec)
        except (SandboxGone, IsolationDrift) as fault:
            if not pooled:
                raise
            # The pooled sandbox ended or is outdated. Nothing of the session was in it.
            _log.info("pooled sandbox %s is replaced: %s", spec.owner, fault)
            return self._sandboxes.open(spec)

    def _seed_workspace(self, row: SandboxRow, sandbox: Sandbox) -> SandboxSnapshotRestored | None:
        """Seed the workspace. Returns the event to record if the seed is an ended session's snapshot."""
        if row.seed_artifact is None:
            return None
        artifact = self._artifacts.find(row.tenant_id, ArtifactId(row.seed_artifact))
        if row.opened_from is None:
            sandbox.import_tar(self._artifacts.read(artifact))
            return None
        sandbox.restore(self._artifacts.stream(artifact), replace=True)
        return SandboxSnapshotRestored(
            sandbox_id=row.id,
            snapshot=call_events.artifact_ref(artifact),
            from_session=SessionId(row.opened_from),
            execution_env=self._environment,
        )

    @property
    def _environment(self) -> ToolExecutionEnv:
        return ToolExecutionEnv(self._sandboxes.execution_environment.environment)
