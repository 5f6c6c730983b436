"""Stores snapshots of changed workspaces as artifacts, from which ended sessions are reopened (ADR 34)."""

from __future__ import annotations

import logging
from contextlib import closing

from codesdk.artifacts import ArtifactService, StoredArtifact
from codesdk.artifacts.artifact import ArtifactUnknown
from codesdk.domain.clock import Clock
from codesdk.domain.payloads import SandboxSnapshotTaken
from codesdk.errors import Fault
from codesdk.eventlog.log import EventLog
from codesdk.hosts import store as host_store
from codesdk.sandbox.port import Sandbox
from codesdk.sandbox.records import store as sandbox_store
from codesdk.sandbox.records.store import SandboxRow
from codesdk.storage.database import Database
from codesdk.storage.writer import Unit, Writer
from codesdk.toolcalls.records import call_events
from codesdk.worker.ownership.heartbeat import HostGone
from codesdk.worker.ownership.registration import OwnedHost
from codesdk.worker.sandboxes.events import sandbox_event
from codesdk.worker.sandboxes.registry import SandboxRegistry
from codesdk.worker.workspaces import snapshot_store
from codesdk.worker.workspaces.snapshot_store import DueSnapshot
from codesdk.worker.workspaces.workspace_copy import closable

_log = logging.getLogger(__name__)

MAX_SNAPSHOT_S = 20.0
"""Seconds that a snapshot may block the session's calls."""


class TooLarge(Fault):
    """The workspace is too large for a snapshot."""

    code = "SNAPSHOT_TOO_LARGE"


class SnapshotLoop:
    """Takes snapshots of one host's sessions. Call `look` from one thread."""

    def __init__(
        self,
        *,
        sandbox_registry: SandboxRegistry,
        host: OwnedHost,
        artifacts: ArtifactService,
        database: Database,
        writer: Writer,
        log: EventLog,
        clock: Clock,
        most_bytes: int,
        every_s: float,
    ) -> None:
        """`most_bytes`: largest snapshot; `every_s`: minimum seconds between two snapshots of a session."""
        self._sandbox_registry = sandbox_registry
        self._host = host
        self._artifacts = artifacts
        self._database = database
        self._writer = writer
        self._log = log
        self._clock = clock
        self._most_bytes = most_bytes
        self._every_s = every_s
        self._not_before: dict[str, float] = {}
        """When to retry sessions whose snapshot failed, on the monotonic clock."""

    def look(self) -> int:
        """Take the snapshots that are due. Returns their number."""
        with self._database.read() as connection:
            due = snapshot_store.due_snapshots(connection, self._host.id, self._every_s)
        now = self._clock.monotonic()
        self._not_before = {session: at for session, at in self._not_before.items() if at > now}
        return sum(self._take_if_still_due(each) for each in due if each.session not in self._not_before)

    def take_last(self, row: SandboxRow, sandbox: Sandbox) -> None:
        """Take the last snapshot of a closed session before its sandbox is removed. Failures are only logged."""
        try:
            with self._database.read() as connection:
                due = snapshot_store.due_for_closed(connection, row.session_id)
            if due is not None:
                self._take(due, row, sandbox, last=True)
        except Fault as fault:
            _log.warning("the last snapshot of session %s was not taken: %s", row.session_id, fault)

    def _take_if_still_due(self, each: DueSnapshot) -> bool:
        try:
            # Read again inside: no call starts now, and each earlier one has its row, since it was claimed first.
            with self._sandbox_registry.hold_calls(each.session):
                with self._database.read() as connection:
                    again = snapshot_store.due_snapshots(connection, self._host.id, self._every_s, each.session)
                    row = sandbox_store.of_session(connection, each.session)
                if not again or row is None:
                    return False
                self._take(again[0], row, self._sandbox_registry.reach(each.session))
                return True
        except Fault as fault:
            _log.warning("no snapshot of session %s: %s", each.session, fault)
            self._not_before[each.session] = self._clock.monotonic() + self._every_s
            return False

    def _take(self, due: DueSnapshot, row: SandboxRow, sandbox: Sandbox, *, last: bool = False) -> None:
        kept, before = self._read(due, sandbox), self._before(due)

        def record(unit: Unit) -> None:
            if not host_store.is_current(unit.connection, self._host.id, self._host.generation):
                raise HostGone("The host is not this worker's any more.")
            if before is not None:
                self._artifacts.supersede(unit, before)
            self._artifacts.record(unit, kept)
            snapshot_store.record_snapshot(unit.connection, due.session, kept.id, due.at)
            self._log.append(unit, sandbox_event(row, taken))

        taken = SandboxSnapshotTaken(
            sandbox_id=row.id,
            snapshot=call_events.artifact_ref(kept),
            last=last,
            execution_env=self._sandbox_registry.execution_environment.environment,
        )
        self._writer.run(record)
        _log.info("kept %d bytes of the workspace of session %s", kept.size, due.session)

    def _read(self, due: DueSnapshot, sandbox: Sandbox) -> StoredArtifact:
        until = self._clock.monotonic() + MAX_SNAPSHOT_S
        with self._artifacts.spool() as spool, closing(closable(sandbox.snapshot())) as pieces:
            for piece in pieces:
                spool.write(piece)
                if spool.size > self._most_bytes:
                    raise TooLarge(f"The workspace has more than {self._most_bytes} bytes (CODESDK_SNAPSHOT_BYTES).")
                if self._clock.monotonic() > until:
                    raise TooLarge(f"It took more than {MAX_SNAPSHOT_S:g} s.")
            return self._artifacts.keep_spool(
                spool, due.tenant, due.session, content_type="application/x-tar", name="workspace.tar"
            )

    def _before(self, due: DueSnapshot) -> StoredArtifact | None:
        if due.before is None:
            return None
        try:
            return self._artifacts.find(due.tenant, due.before)
        except ArtifactUnknown:
            return None  # deleted meanwhile
