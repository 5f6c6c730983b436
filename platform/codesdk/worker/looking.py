"""Looks at the files that calls name, so that people can be asked about them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial

from codesdk.domain.ids import SessionId, ToolCallId
from codesdk.errors import Fault
from codesdk.registry import UnknownTool
from codesdk.sandbox.faults import RunnerSilent, SandboxGone, StaleGeneration
from codesdk.sandbox.port import FileMark, FileName, FileRefused, MarkKind, Sandbox
from codesdk.storage.database import Database
from codesdk.toolcalls import preparations
from codesdk.toolcalls.bound_files import named
from codesdk.toolcalls.pipeline import Pipeline
from codesdk.toolcalls.stored import StoredCall
from codesdk.worker.host import Host
from codesdk.worker.rooms import Rooms

_log = logging.getLogger(__name__)

PAUSE_S = 0.01
"""After a question, before the next: about as long as one takes, so that a thousand leave the writer half of its time."""


class Looking:
    """The calls of one host that wait for it. Safe to use from the worker's threads."""

    def __init__(self, *, host: Host, rooms: Rooms, pipeline: Pipeline, database: Database) -> None:
        self._host = host
        self._rooms = rooms
        self._pipeline = pipeline
        self._database = database
        self._lock = threading.Lock()
        self._at_work: set[str] = set()
        """Sessions whose calls are seen to."""
        self._putting = threading.Lock()
        """One question at a time: whoever else writes here waits for the questions that stand before it."""
        self._leaving = threading.Event()

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
            waiting = preparations.on_host(connection, self._host.id)
        calls: dict[str, list[StoredCall]] = {}
        for stored in waiting:
            calls.setdefault(stored.subject.session_id, []).append(stored)
        more = again if len(waiting) == preparations.AT_ONCE else lambda: None
        for session, theirs in calls.items():
            with self._lock:
                if session in self._at_work:
                    continue
                self._at_work.add(session)
            start(partial(self._see_all, session, theirs, more))

    def leave(self) -> None:
        """Begin with no call any more: they are rows, and the next worker's."""
        self._leaving.set()

    def _see_all(self, session: str, calls: list[StoredCall], more: Callable[[], None]) -> None:
        """One sandbox's calls in a row: however many of them hang, they take one thread.

        The first that cannot be seen to ends it for this look: what was in its way, in the way of a hundred, would hold
        the thread a hundred times as long.
        """
        put = 0
        try:
            for stored in calls:
                if self._leaving.is_set() or not self._see(stored):
                    break
                put += 1
        finally:
            with self._lock:
                self._at_work.discard(session)
        if put:  # else they wait for whatever was in the way, and the next poll looks
            more()

    def _see(self, stored: StoredCall) -> bool:
        """Whether its question is put now."""
        call, session = stored.identity.tool_call_id, SessionId(stored.subject.session_id)
        names = names_of(self._pipeline, stored)
        sandbox: Sandbox | None = None
        try:
            sandbox = self._rooms.ready(session) if names else None
            self._put(call, marks_of(sandbox, names) if sandbox is not None else ())
        except StaleGeneration as fault:
            _log.warning("call %s is for a newer worker to look at: %s", call, fault)
            return False
        except Fault as fault:
            _log.warning("call %s waits: %s", call, fault)  # the next poll looks again
            returns = isinstance(fault, SandboxGone) and sandbox is not None and self._rooms.lose(session, sandbox)
            if fault.retryable or returns or isinstance(fault, RunnerSilent):
                return False
            # The question is put; what nobody has seen is bound as such, so that it runs nothing that is there then.
            self._put(call, unseen(names))
        return True

    def _put(self, call: ToolCallId, marks: tuple[FileMark, ...]) -> None:
        with self._putting:
            self._pipeline.put(call, marks)
            self._leaving.wait(PAUSE_S)


def names_of(pipeline: Pipeline, stored: StoredCall) -> tuple[FileName, ...]:
    """The files that a call names; none where its tool is gone, which is said where the question would be put."""
    try:
        tool = pipeline.registry.of(stored.tenant_id).resolve(stored.call.name)
    except UnknownTool:
        return ()
    return named(tool, stored.call.input)


def marks_of(sandbox: Sandbox, names: tuple[FileName, ...]) -> tuple[FileMark, ...]:
    """What they lead to now."""
    found = sandbox.files.marks(names) if names else ()
    return unseen(names) if isinstance(found, FileRefused) else found


def unseen(names: tuple[FileName, ...]) -> tuple[FileMark, ...]:
    """As what they are bound where nobody could look."""
    return tuple(FileMark(path=name.path, cwd=name.cwd, kind=MarkKind.CLOSED) for name in names)
