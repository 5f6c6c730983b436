"""Retention: removes sessions that closed long ago, each in one transaction, and records the removal."""

from __future__ import annotations

import logging

from codesdk.archive import store
from codesdk.artifacts import ArtifactService
from codesdk.domain.clock import Clock
from codesdk.domain.ids import SessionId
from codesdk.domain.model import FrozenModel
from codesdk.eventlog.audit import AuditAction, AuditTrail
from codesdk.storage.database import Database
from codesdk.storage.timeouts import without_timeout
from codesdk.storage.writer import Unit, Writer

BATCH = 100
DAY_S = 24 * 3600.0

_log = logging.getLogger(__name__)


class PruneSummary(FrozenModel):
    """What was removed, or would be on a dry run."""

    sessions: tuple[SessionId, ...] = ()
    events: int = 0
    artifacts: int = 0


class Retention:
    """Removes expired sessions of one database. Several may run at once."""

    def __init__(self, *, database: Database, writer: Writer, artifacts: ArtifactService, clock: Clock) -> None:
        self._database = database
        self._writer = writer
        self._artifacts = artifacts
        self._clock = clock
        self._trail = AuditTrail(clock)

    def prune(self, older_than_s: float, *, reason: str, actor: str = "retention", dry: bool = False) -> PruneSummary:
        """Remove sessions closed more than `older_than_s` ago, with their artifacts. `dry`: only report them.

        Keeps a session while its sandbox exists, or while an open session starts from one of its artifacts.
        """
        before = self._clock.now().timestamp() - older_than_s
        done = PruneSummary()
        after = ""
        while batch := self._prunable(before, after):
            for session in batch:
                removed = self._measure(session) if dry else self._remove(session, before, reason, actor)
                done = PruneSummary(
                    sessions=done.sessions + removed.sessions,
                    events=done.events + removed.events,
                    artifacts=done.artifacts + removed.artifacts,
                )
            after = batch[-1]
        return done

    def _prunable(self, before: float, after: str) -> list[SessionId]:
        with self._database.read() as connection, without_timeout(connection):  # scans every closed session
            return store.prunable_sessions(connection, before, BATCH, after)

    def _measure(self, session: SessionId) -> PruneSummary:
        with self._database.read() as connection:
            events, artifacts = store.count_contents(connection, session)
        return PruneSummary(sessions=(session,), events=events, artifacts=artifacts)

    def _remove(self, session: SessionId, before: float, reason: str, actor: str) -> PruneSummary:
        def work(unit: Unit) -> PruneSummary:
            if not store.lock_if_prunable(unit.connection, session, before):
                return PruneSummary()
            with without_timeout(unit.connection):  # a session may have a million events
                artifacts = self._artifacts.delete_of_session(unit, session)
                tenant = store.tenant_of(unit.connection, session)
                events = store.remove_session(unit.connection, session, self._clock.now().timestamp(), reason)
            known = {"reason": reason, "events": events, "artifacts": artifacts}
            self._trail.record(unit, tenant, AuditAction.SESSION_REMOVED, actor=actor, target=session, **known)
            return PruneSummary(sessions=(session,), events=events, artifacts=artifacts)

        removed = self._writer.run(work)
        if removed.sessions:
            _log.info("removed session %s with %d events: %s", session, removed.events, reason)
        return removed
