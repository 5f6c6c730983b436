"""Closes sessions whose host was lost, each in one transaction, and releases their reservations."""

from __future__ import annotations

import logging
from functools import partial

from codesdk.domain.calls import CallState
from codesdk.domain.ids import HostId, SandboxId
from codesdk.domain.records import Session
from codesdk.errors import Fault
from codesdk.eventlog.log import EventLog
from codesdk.hosts import store as host_store
from codesdk.hosts.lease_watch import LeaseWatch
from codesdk.sandbox.records import store as sandbox_store
from codesdk.sandbox.records.store import SandboxState
from codesdk.sessions import store
from codesdk.sessions.service import SessionService
from codesdk.sessions.session import HOST_LOST
from codesdk.storage.database import Database
from codesdk.storage.writer import Unit, Writer
from codesdk.toolcalls.records import store as call_store
from codesdk.toolcalls.retries.lost_calls import end_lost

_log = logging.getLogger(__name__)

LOST_CALL_MESSAGE = (
    "The host that ran this call was lost, and whether the call took effect is unknown. It was not run again. "
    "The session has ended; its last snapshot, where there is one, can be opened on another host."
)


class LostHosts:
    """Declares silent hosts lost and closes their sessions.

    Several processes may run one at once; within a process, call `tend` from one thread at a time.
    """

    def __init__(
        self, *, watch: LeaseWatch, sessions: SessionService, database: Database, writer: Writer, log: EventLog
    ) -> None:
        self._watch = watch
        self._sessions = sessions
        self._database = database
        self._writer = writer
        self._log = log

    def tend(self) -> int:
        """Declare silent hosts lost, close the sessions of all lost hosts, and return how many this call closed.

        Raises:
            StorageUnavailable: the next call continues.
        """
        self._watch.look()
        with self._database.read() as connection:
            opened = store.open_on_lost_hosts(connection)
            left = store.orphaned_sandboxes(connection)
        ended = sum(map(self._try_end, opened))
        for sandbox, host in left:
            self._writer.run(partial(self._remove_orphan, sandbox=sandbox, host=host))
        if ended:
            _log.warning("%d sessions ended with their hosts", ended)
        return ended

    def _try_end(self, session: Session) -> bool:
        try:
            return self._end(session)
        except Fault as fault:  # a session that can't be closed now must not keep the others open
            _log.warning("session %s of a lost host could not be ended yet: %s", session.id, fault)
            return False

    def _end(self, session: Session) -> bool:
        def due(unit: Unit) -> bool:
            # Checked under the host's row lock: if a worker takes the host over meanwhile, it keeps its open sessions.
            if not host_store.is_lost(unit.connection, session.host_id):
                return False
            # A claim that is being committed holds its call's row. Waiting for it lets the next line see the call as
            # running.
            call_store.list_in_state(unit.connection, CallState.QUEUED, session=session.id, hold=True)
            for stored in call_store.list_in_state(unit.connection, CallState.RUNNING, session=session.id, hold=True):
                end_lost(unit, self._log, stored, LOST_CALL_MESSAGE)
            row = sandbox_store.of_session(unit.connection, session.id)
            if row is not None:
                _mark_gone(unit, row.id)
            return True

        return self._sessions.close_if(session.tenant_id, session.id, HOST_LOST, due)

    @staticmethod
    def _remove_orphan(unit: Unit, sandbox: SandboxId, host: HostId) -> None:
        """Remove the sandbox of a session that was closed earlier and whose host never cleaned it up."""
        if host_store.is_lost(unit.connection, host):
            _mark_gone(unit, sandbox)
            sandbox_store.delete_unowned(unit.connection, sandbox)  # without a session, no log needs the row


def _mark_gone(unit: Unit, sandbox: SandboxId) -> None:
    # Its container has no living owner any more, so the host's next worker removes it during reconciliation.
    before = tuple(state for state in SandboxState if state is not SandboxState.GONE)
    sandbox_store.change_state(unit.connection, sandbox, before, SandboxState.GONE, reason=HOST_LOST)
