"""Looks at the files that calls name, so that people can be asked about them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial

from codesdk.domain.ids import SessionId, ToolCallId
from codesdk.errors import Fault
from codesdk.registry import UnknownTool
from codesdk.sandbox.port import FileFingerprint, FileRefused, FingerprintKind, NamedPath, Sandbox
from codesdk.sandbox.port.faults import RunnerSilent, SandboxGone, StaleGeneration
from codesdk.storage.database import Database
from codesdk.toolcalls.approval import deferral_store
from codesdk.toolcalls.approval.bound_files import named_files
from codesdk.toolcalls.pipeline import Pipeline
from codesdk.toolcalls.records.call_record import CallRecord
from codesdk.worker.ownership.registration import OwnedHost
from codesdk.worker.sandboxes.registry import SandboxRegistry

_log = logging.getLogger(__name__)

REQUEST_PAUSE_S = 0.01
"""After a question, before the next: about as long as one takes, so that a thousand leave the writer half of its time."""


class FileFingerprints:
    """The calls of one host that wait for it. Safe to use from the worker's threads."""

    def __init__(
        self, *, host: OwnedHost, sandbox_registry: SandboxRegistry, pipeline: Pipeline, database: Database
    ) -> None:
        self._host = host
        self._sandbox_registry = sandbox_registry
        self._pipeline = pipeline
        self._database = database
        self._lock = threading.Lock()
        self._at_work: set[str] = set()
        """Sessions whose calls are seen to."""
        self._put_lock = threading.Lock()
        """One question at a time: whoever else writes here waits for the questions that stand before it."""
        self._stopping = threading.Event()

    def look(
        self,
        start: Callable[[Callable[[], None]], object] = lambda work: work(),
        again: Callable[[], None] = lambda: None,
    ) -> None:
        """See to those that nobody sees to yet, of each tenant the oldest first.

        `start` runs the work on each sandbox: one that hangs holds up no other. `again` is told when a sandbox's are
        seen to and there may be more, so that a long queue waits for no poll.
        """
        with self._database.read() as connection:
            waiting = deferral_store.awaiting_fingerprints(connection, self._host.id)
        calls: dict[str, list[CallRecord]] = {}
        for stored in waiting:
            calls.setdefault(stored.subject.session_id, []).append(stored)
        more = again if len(waiting) == deferral_store.BATCH_SIZE else lambda: None
        for session, theirs in calls.items():
            with self._lock:
                if session in self._at_work:
                    continue
                self._at_work.add(session)
            start(partial(self._fingerprint_session, session, theirs, more))

    def stop(self) -> None:
        """Begin with no call any more: they are rows, and the next worker's."""
        self._stopping.set()

    def _fingerprint_session(self, session: str, calls: list[CallRecord], more: Callable[[], None]) -> None:
        """One sandbox's calls in a row: however many of them hang, they take one thread.

        The first that cannot be seen to ends it for this look: what was in its way, in the way of a hundred, would hold
        the thread a hundred times as long.
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
        if put:  # else they wait for whatever was in the way, and the next poll looks
            more()

    def _fingerprint(self, stored: CallRecord) -> bool:
        """Whether its question is put now."""
        call, session = stored.identity.tool_call_id, SessionId(stored.subject.session_id)
        names = named_files_of(self._pipeline, stored)
        sandbox: Sandbox | None = None
        try:
            sandbox = self._sandbox_registry.ready(session) if names else None
            self._put(call, fingerprints(sandbox, names) if sandbox is not None else ())
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
            # The question is put; what nobody has seen is bound as such, so that it runs nothing that is there then.
            self._put(call, unreadable_fingerprints(names))
        return True

    def _put(self, call: ToolCallId, marks: tuple[FileFingerprint, ...]) -> None:
        with self._put_lock:
            self._pipeline.put(call, marks)
            self._stopping.wait(REQUEST_PAUSE_S)


def named_files_of(pipeline: Pipeline, stored: CallRecord) -> tuple[NamedPath, ...]:
    """The files that a call names; none where its tool is gone, which is said where the question would be put."""
    try:
        tool = pipeline.registry.of(stored.tenant_id).resolve(stored.call.name)
    except UnknownTool:
        return ()
    return named_files(tool, stored.call.input)


def fingerprints(sandbox: Sandbox, names: tuple[NamedPath, ...]) -> tuple[FileFingerprint, ...]:
    """What they lead to now."""
    found = sandbox.files.marks(names) if names else ()
    return unreadable_fingerprints(names) if isinstance(found, FileRefused) else found


def unreadable_fingerprints(names: tuple[NamedPath, ...]) -> tuple[FileFingerprint, ...]:
    """As what they are bound where nobody could look."""
    return tuple(FileFingerprint(path=name.path, cwd=name.cwd, kind=FingerprintKind.CLOSED) for name in names)
