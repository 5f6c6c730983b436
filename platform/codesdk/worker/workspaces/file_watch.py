"""Turns file changes in watched workspaces into events: at most one per second, bounded, counting what it drops."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from codesdk.domain.clock import Clock
from codesdk.domain.execution import ToolExecutionEnv
from codesdk.domain.payloads import FileChange, SandboxFilesChanged
from codesdk.errors import Fault
from codesdk.eventlog.log import EventLog
from codesdk.sandbox.port import Change, ChangeKind, FileError, FileRefused, Files, Sandbox, WatchMethod
from codesdk.sandbox.port.faults import SandboxGone
from codesdk.sandbox.records import store
from codesdk.sandbox.records.store import SandboxRow, SandboxState
from codesdk.storage.database import Database
from codesdk.storage.writer import Writer
from codesdk.worker.ownership.registration import OwnedHost
from codesdk.worker.sandboxes.events import sandbox_event
from codesdk.worker.sandboxes.registry import SandboxRegistry

_log = logging.getLogger(__name__)

PAUSE_S = 1.0
"""Seconds between two reads of one workspace, and so between two events."""
BUSY_EVENTS = 10
"""Events in a row after which a workspace that keeps changing, as by a growing log file, is read less often."""
BUSY_PAUSE_S = 5.0
RETRY_S = 60.0
"""Seconds before a watch that failed to start or to be read is retried."""
READ_LIMIT = 1000
"""Changes per read. The runner buffers four thousand more."""
EVENT_CHANGES = 200
"""Most changes in one event."""
PATH_BYTES = 64 * 1024
"""Most bytes of paths in one event. JSON encodes each in up to six, and the log accepts events of 256 KiB."""


@dataclass
class _WatchState:
    """How far the changes of one workspace have been recorded."""

    watch: str = ""
    unreported: WatchMethod | None = None
    """Method of a watch whose `begun` event is not stored yet."""
    after: int = 0
    due: float = 0.0
    in_a_row: int = 0
    ended: set[str] = field(default_factory=set)
    """Reasons already recorded: a watch that keeps failing is retried, but reported once."""


class FileWatch:
    """Reads the watched workspaces of one host. Call from one thread."""

    def __init__(
        self,
        *,
        sandbox_registry: SandboxRegistry,
        host: OwnedHost,
        database: Database,
        log: EventLog,
        writer: Writer,
        clock: Clock,
    ) -> None:
        self._sandbox_registry = sandbox_registry
        self._host = host
        self._database = database
        self._log = log
        self._writer = writer
        self._clock = clock
        self._watches: dict[str, _WatchState] = {}

    def look(self) -> None:
        """Read each watched workspace that is due. Skips paused sandboxes: nothing changes in them."""
        with self._database.read() as connection:
            rows = store.on_host(connection, self._host.id, (SandboxState.READY,))
        rows = [row for row in rows if row.watch]
        for gone in self._watches.keys() - {row.id for row in rows}:
            del self._watches[gone]
        for row in rows:
            known = self._watches.setdefault(row.id, _WatchState())
            if self._clock.monotonic() < known.due:
                continue
            sandbox: Sandbox | None = None
            try:
                sandbox = self._sandbox_registry.reach(row.session_id)
                self._read_changes(row, known, sandbox.files)
            except SandboxGone:
                # Drop only the sandbox that failed: a call may run in its replacement by now.
                if sandbox is not None:
                    self._sandbox_registry.lose(row.session_id, sandbox)
            except Fault as fault:
                # Back off, so that a sandbox that does not answer delays the others only once.
                _log.warning("the workspace of session %s cannot be watched now: %s", row.session_id, fault)
                known.due = self._clock.monotonic() + RETRY_S

    def _read_changes(self, row: SandboxRow, known: _WatchState, files: Files) -> None:
        if not known.watch:
            begun = files.watch()
            if isinstance(begun, FileRefused):
                self._report_ended(row, known, begun.message)
                return
            known.watch, known.after, known.unreported = begun.id, 0, begun.method
        if known.unreported is not None:
            method = known.unreported.value
            self._append_event(row, phase="begun", method=method)
            known.unreported = None
            known.ended.clear()
        found = files.changes(known.watch, known.after, limit=READ_LIMIT)
        if isinstance(found, FileRefused):
            known.watch = ""  # the runner restarted, or dropped an unread watch: the next look starts a new one
            if found.error is not FileError.NOT_FOUND:
                self._report_ended(row, known, found.message)
            return
        if found.changes:
            changes, dropped, lost = batch_changes(found.changes)
            self._append_event(row, phase="changed", changes=changes, dropped=dropped, lost=lost)
        # Only after the commit: changes that were not stored are read again.
        known.after = found.next
        known.in_a_row = known.in_a_row + 1 if found.changes else 0
        known.due = self._clock.monotonic() + (BUSY_PAUSE_S if known.in_a_row > BUSY_EVENTS else PAUSE_S)
        if found.over and not found.changes:
            known.watch = ""
            self._report_ended(row, known, found.over)

    def _report_ended(self, row: SandboxRow, known: _WatchState, reason: str) -> None:
        known.due = self._clock.monotonic() + RETRY_S
        if reason in known.ended:
            return
        self._append_event(row, phase="ended", reason=reason[:500])
        known.ended.add(reason)

    def _append_event(self, row: SandboxRow, **fields: Any) -> None:
        payload = SandboxFilesChanged(sandbox_id=row.id, execution_env=self._environment, **fields)
        written = self._log.encode(sandbox_event(row, payload))
        self._writer.run(lambda unit: self._log.append(unit, written))

    @property
    def _environment(self) -> ToolExecutionEnv:
        return ToolExecutionEnv(self._sandbox_registry.execution_environment.environment)


def batch_changes(found: Iterable[Change]) -> tuple[tuple[FileChange, ...], int, tuple[str, ...]]:
    """Fit changes into one event. Returns them, the number dropped, and the directories that lost some earlier."""
    kept: list[FileChange] = []
    lost: dict[str, None] = {}
    dropped, size = 0, 0
    for change in found:
        path = _valid_utf8(change.path)
        if change.kind is ChangeKind.OVERFLOW:
            lost[path] = None
            continue
        change_event = FileChange(
            kind=change.kind.value, path=path, source=None if change.source is None else _valid_utf8(change.source)
        )
        if kept and kept[-1] == change_event and not dropped:
            continue
        size += len(change_event.path.encode()) + len((change_event.source or "").encode())
        # Once one is dropped, drop all after it: the event holds a prefix without gaps.
        if dropped or len(kept) == EVENT_CHANGES or size > PATH_BYTES:
            dropped += 1
        else:
            kept.append(change_event)
    places = tuple(lost) if len("".join(lost)) <= PATH_BYTES // 2 and len(lost) <= EVENT_CHANGES else (".",)
    return tuple(kept), dropped, places


def _valid_utf8(path: str) -> str:
    return path.encode("utf-8", "replace").decode()
