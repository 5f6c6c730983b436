"""Removes sessions that closed long ago: each whole, in one transaction, never the middle of a log; and notes that it did."""

from __future__ import annotations

import logging

from codesdk.archive import store
from codesdk.artifacts import Artifacts
from codesdk.domain.clock import Clock
from codesdk.domain.decisions import Frozen
from codesdk.domain.ids import SessionId
from codesdk.eventlog.audit import Act, Trail
from codesdk.storage.database import Database
from codesdk.storage.patience import unhurried
from codesdk.storage.writer import Unit, Writer

BATCH = 100
DAY_S = 24 * 3600.0

_log = logging.getLogger(__name__)


class Pruned(Frozen):
    """What was removed, or would be."""

    sessions: tuple[SessionId, ...] = ()
    events: int = 0
    artifacts: int = 0


class Retention:
    """Keeps the sessions of one database for so long and no longer. Several may run at once."""

    def __init__(self, *, database: Database, writer: Writer, artifacts: Artifacts, clock: Clock) -> None:
        self._database = database
        self._writer = writer
        self._artifacts = artifacts
        self._clock = clock
        self._trail = Trail(clock)

    def prune(self, older_than_s: float, *, reason: str, actor: str = "retention", dry: bool = False) -> Pruned:
        """Remove every session that was closed longer ago than that, with its artifacts; `dry`: only say which.

        A session stays while its sandbox is not gone, or while an open session starts from one of its artifacts.
        """
        before = self._clock.now().timestamp() - older_than_s
        done = Pruned()
        after = ""
        while batch := self._due(before, after):
            for session in batch:
                removed = self._measure(session) if dry else self._remove(session, before, reason, actor)
                done = Pruned(
                    sessions=done.sessions + removed.sessions,
                    events=done.events + removed.events,
                    artifacts=done.artifacts + removed.artifacts,
                )
            after = batch[-1]
        return done

    def _due(self, before: float, after: str) -> list[SessionId]:
        with self._database.read() as connection, unhurried(connection):  # it looks at every closed session
            return store.due(connection, before, BATCH, after)

    def _measure(self, session: SessionId) -> Pruned:
        with self._database.read() as connection:
            events, artifacts = store.sizes(connection, session)
        return Pruned(sessions=(session,), events=events, artifacts=artifacts)

    def _remove(self, session: SessionId, before: float, reason: str, actor: str) -> Pruned:
        def work(unit: Unit) -> Pruned:
            if not store.still_due(unit.connection, session, before):
                return Pruned()
            with unhurried(unit.connection):  # a session may have a million events
                artifacts = self._artifacts.delete_of_session(unit, session)
                tenant = store.tenant_of(unit.connection, session)
                events = store.remove_session(unit.connection, session, self._clock.now().timestamp(), reason)
            known = {"reason": reason, "events": events, "artifacts": artifacts}
            self._trail.record(unit, tenant, Act.SESSION_REMOVED, actor=actor, target=session, **known)
            return Pruned(sessions=(session,), events=events, artifacts=artifacts)

        removed = self._writer.run(work)
        if removed.sessions:
            _log.info("removed session %s with %d events: %s", session, removed.events, reason)
        return removed
