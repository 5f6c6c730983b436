"""Fingerprints the files that calls name, so that an approval covers their content."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from codesdk.domain.ids import SessionId, ToolCallId
from codesdk.errors import Fault
from codesdk.sandbox.port import FileFingerprint, FileRefused, FingerprintKind, NamedPath, Sandbox
from codesdk.sandbox.port.faults import RunnerSilent, SandboxGone, StaleGeneration
from codesdk.storage.database import Database
from codesdk.toolcalls.approval import store as deferrals
from codesdk.toolcalls.approval.deferred import DeferredApprovals
from codesdk.toolcalls.approval.scripts import read_scripts
from codesdk.toolcalls.records.call_record import CallRecord
from codesdk.worker.ownership.registration import OwnedHost
from codesdk.worker.sandboxes.registry import SandboxRegistry

_log = logging.getLogger(__name__)

REQUEST_PAUSE_S = 0.01
"""Pause between two approval requests. About as long as one takes, so a thousand leave half of the writer's time free."""


class FileFingerprints:
    """Fingerprints waiting calls of one host. Thread-safe."""

    def __init__(
        self,
        *,
        host: OwnedHost,
        sandbox_registry: SandboxRegistry,
        deferred_approvals: DeferredApprovals,
        database: Database,
    ) -> None:
        self._host = host
        self._sandbox_registry = sandbox_registry
        self._deferred_approvals = deferred_approvals
        self._database = database
        self._lock = threading.Lock()
        self._at_work: set[str] = set()
        """Sessions in progress."""
        self._put_lock = threading.Lock()
        """One approval request at a time, so that other writes wait behind at most one."""
        self._stopping = threading.Event()

    def look(
        self,
        start: Callable[[Callable[[], None]], object] = lambda work: work(),
        again: Callable[[], None] = lambda: None,
    ) -> None:
        """Fingerprint waiting calls that no thread has yet, oldest first per tenant.

        `start` schedules the work per sandbox, so one that hangs blocks no other. `again` is called when a sandbox is done
        and more calls may wait, so that a long queue doesn't wait for the next poll.
        """
        with self._database.read() as connection:
            waiting = deferrals.awaiting_fingerprints(connection, self._host.id)
        calls: dict[str, list[CallRecord]] = {}
        for stored in waiting:
            calls.setdefault(stored.subject.session_id, []).append(stored)
        more = again if len(waiting) == deferrals.BATCH_SIZE else lambda: None
        for session, theirs in calls.items():
            with self._lock:
                if session in self._at_work:
                    continue
                self._at_work.add(session)
            start(partial(self._fingerprint_session, session, theirs, more))

    def stop(self) -> None:
        """Start no more calls. The next worker handles them."""
        self._stopping.set()

    def _fingerprint_session(self, session: str, calls: list[CallRecord], more: Callable[[], None]) -> None:
        """Process one sandbox's calls in order on one thread.

        Stops at the first that fails: the cause usually affects the others too, and each would block the thread as long.
        """
        put = 0
        try:
            for stored in calls:
                if self._stopping.is_set() or not self._fingerprint(stored):
                    break
                put += 1
        finally:
            with self._lock:
                self._at_work.discard(session)
        if put:  # otherwise the next poll retries
            more()

    def _fingerprint(self, stored: CallRecord) -> bool:
        """Fingerprint one call. True: its approval was requested."""
        call, session = stored.identity.tool_call_id, SessionId(stored.subject.session_id)
        names = self._deferred_approvals.named_files(stored)
        sandbox: Sandbox | None = None
        try:
            sandbox = self._sandbox_registry.ready(session) if names else None
            marks = fingerprints(sandbox, names) if sandbox is not None else ()
            self._put(call, marks, shown_scripts(sandbox, marks, self._deferred_approvals.script_paths(stored)))
        except StaleGeneration as fault:
            _log.warning("call %s is for a newer worker to look at: %s", call, fault)
            return False
        except Fault as fault:
            _log.warning("call %s waits: %s", call, fault)  # the next poll looks again
            returns = (
                isinstance(fault, SandboxGone) and sandbox is not None and self._sandbox_registry.lose(session, sandbox)
            )
            if fault.retryable or returns or isinstance(fault, RunnerSilent):
                return False
            # Request the approval with unreadable fingerprints: the call then fails if the files exist when it runs.
            self._put(call, unreadable_fingerprints(names))
        return True

    def _put(
        self, call: ToolCallId, marks: tuple[FileFingerprint, ...], scripts: Sequence[dict[str, Any]] = ()
    ) -> None:
        with self._put_lock:
            self._deferred_approvals.put(call, marks, scripts=scripts)
            self._stopping.wait(REQUEST_PAUSE_S)


def fingerprints(sandbox: Sandbox, names: tuple[NamedPath, ...]) -> tuple[FileFingerprint, ...]:
    """Fingerprint the named files as they are now."""
    found = sandbox.files.marks(names) if names else ()
    return unreadable_fingerprints(names) if isinstance(found, FileRefused) else found


def shown_scripts(
    sandbox: Sandbox | None, marks: tuple[FileFingerprint, ...], paths: Sequence[str]
) -> list[dict[str, Any]]:
    """What people are shown of the scripts among the fingerprinted files."""
    return read_scripts(sandbox.files, marks, paths) if sandbox is not None and paths else []


def unreadable_fingerprints(names: tuple[NamedPath, ...]) -> tuple[FileFingerprint, ...]:
    """Fingerprints for files that could not be read."""
    return tuple(FileFingerprint(path=name.path, cwd=name.cwd, kind=FingerprintKind.CLOSED) for name in names)
