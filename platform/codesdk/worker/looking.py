"""Looks at the files that calls name, so that people can be asked about them."""

from __future__ import annotations

import logging

from codesdk.domain.ids import SessionId
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
    """The calls of one host that wait for it."""

    def __init__(self, *, host: Host, rooms: Rooms, pipeline: Pipeline, database: Database) -> None:
        self._host = host
        self._rooms = rooms
        self._pipeline = pipeline
        self._database = database

    def look(self) -> None:
        """See to all of them."""
        with self._database.read() as connection:
            waiting = preparations.on_host(connection, self._host.id)
        for stored in waiting:
            try:
                marks = self._marks(stored)
            except Fault as fault:
                if fault.retryable:
                    _log.warning("call %s waits: %s", stored.identity.tool_call_id, fault)
                    continue  # the next poll looks again
                # A sandbox that is gone shows nothing: the question is put without, and would run nothing.
                _log.warning("no file of call %s can be looked at: %s", stored.identity.tool_call_id, fault)
                marks = ()
            self._pipeline.put(stored.identity.tool_call_id, marks)

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
