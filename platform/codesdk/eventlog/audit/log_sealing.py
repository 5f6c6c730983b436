"""Seals session logs: periodically adds the hash of all events so far to the tenant's chain."""

from __future__ import annotations

from codesdk.domain.clock import Clock
from codesdk.eventlog import store as log_store
from codesdk.eventlog.audit import store
from codesdk.eventlog.audit.entry import AuditAction, event_hash
from codesdk.eventlog.audit.store import SealState
from codesdk.eventlog.audit.trail import AuditTrail
from codesdk.eventlog.log import PAGE_SIZE
from codesdk.storage.database import Database
from codesdk.storage.writer import Unit, Writer

SEAL_BATCH = 100
SEAL_ACTOR = "codesdk"
"""The actor of seals, which no principal requests."""


class Sealer:
    """Seals the logs that have grown. Several may run at once: only one of them can advance a seal."""

    def __init__(self, database: Database, writer: Writer, clock: Clock) -> None:
        self._database = database
        self._writer = writer
        self._trail = AuditTrail(clock)

    def seal(self) -> int:
        """Seal every session that has grown since its last seal. Returns how many were sealed.

        Raises:
            StorageUnavailable: the next call seals the rest.
        """
        done, after = 0, ""
        while True:
            with self._database.read() as connection:
                batch = store.unsealed_sessions(connection, SEAL_BATCH, after)
            for session in batch:
                done += self._seal(session)
            if len(batch) < SEAL_BATCH:
                return done
            after = batch[-1].id

    def _seal(self, session: SealState) -> bool:
        seq, hash_ = session.sealed_seq, session.sealed_hash
        while True:
            with self._database.read() as connection:
                page = log_store.after(connection, session.id, seq, PAGE_SIZE)
            for row in page:
                seq, hash_ = row.seq, event_hash(hash_, row.seq, row.time, row.type, row.body)
            if len(page) < PAGE_SIZE:
                break

        def work(unit: Unit) -> bool:
            if seq == session.sealed_seq or not store.advance_seal(unit.connection, session, seq, hash_):
                return False
            known = {"from": session.sealed_seq, "seq": seq, "hash": hash_}
            self._trail.record(
                unit, session.tenant_id, AuditAction.SESSION_SEALED, actor=SEAL_ACTOR, target=session.id, **known
            )
            return True

        return self._writer.run(work)
