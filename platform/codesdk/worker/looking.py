"""Looks at the files that calls name, so that people can be asked about them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial

from codesdk.domain.ids import SessionId, ToolCallId
from codesdk.errors import Fault
from codesdk.registry import UnknownTool
from codesdk.sandbox.port import FileMark, FileName, FileRefused, MarkKind
from codesdk.storage.database import Database
from codesdk.toolcalls import preparations
from codesdk.toolcalls.bound_files import named
from codesdk.toolcalls.pipeline import Pipeline
from codesdk.toolcalls.stored import StoredCall
from codesdk.worker.host import Host
from codesdk.worker.rooms import Rooms

_log = logging.getLogger(__name__)


class Looking:
    """The calls of one host that wait for it. Safe to use from the worker's threads."""

    def __init__(self, *, host: Host, rooms: Rooms, pipeline: Pipeline, database: Database) -> None:
        self._host = host
        self._rooms = rooms
        self._pipeline = pipeline
        self._database = database
        self._lock = threading.Lock()
        self._at_work: set[ToolCallId] = set()

    def look(self, start: Callable[[Callable[[], None]], object] = lambda work: work()) -> None:
        """See to all that nobody sees to yet. `start` runs the work on each: one sandbox that hangs holds up no other."""
        with self._database.read() as connection:
            waiting = preparations.on_host(connection, self._host.id)
        for stored in waiting:
            call = stored.identity.tool_call_id
            with self._lock:
                if call in self._at_work:
                    continue
                self._at_work.add(call)
            start(partial(self._see, stored))

    def _see(self, stored: StoredCall) -> None:
        call = stored.identity.tool_call_id
        try:
            self._pipeline.put(call, self._marks(stored))
        except Fault as fault:
            _log.warning("call %s waits: %s", call, fault)  # the next poll looks again
            if not fault.retryable:
                # A sandbox that is gone shows nothing: the question is put without, and would run nothing.
                self._pipeline.put(call, ())
        finally:
            with self._lock:
                self._at_work.discard(call)

    def _marks(self, stored: StoredCall) -> tuple[FileMark, ...]:
        try:
            tool = self._pipeline.registry.of(stored.tenant_id).resolve(stored.call.name)
        except UnknownTool:
            return ()  # which is said where the question would be put
        names = named(tool, stored.call.input)
        found = self._rooms.ready(SessionId(stored.subject.session_id)).files.marks(names)
        return _unseen(names) if isinstance(found, FileRefused) else found


def _unseen(names: tuple[FileName, ...]) -> tuple[FileMark, ...]:
    return tuple(FileMark(path=name.path, cwd=name.cwd, kind=MarkKind.CLOSED) for name in names)
