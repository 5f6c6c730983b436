"""Seals sessions' logs: from time to time the hash of all events so far becomes an entry in the tenant's chain."""

from __future__ import annotations

from codesdk.domain.clock import Clock
from codesdk.eventlog import store as log_store
from codesdk.eventlog.audit import store
from codesdk.eventlog.audit.entry import Act, event_hash
from codesdk.eventlog.audit.store import Grown
from codesdk.eventlog.audit.trail import Trail
from codesdk.eventlog.log import PAGE
from codesdk.storage.database import Database
from codesdk.storage.writer import Unit, Writer

BATCH = 100
SEALER = "codesdk"
"""Who seals: nobody asked for it."""


class Sealer:
    """Seals what has grown. Several may run at once: one of them is faster."""

    def __init__(self, database: Database, writer: Writer, clock: Clock) -> None:
        self._database = database
        self._writer = writer
        self._trail = Trail(clock)

    def seal(self) -> int:
        """Every session that has grown since it was sealed; how many there were.

        Raises:
            StorageUnavailable: the rest waits for the next time.
        """
        done, after = 0, ""
        while True:
            with self._database.read() as connection:
                batch = store.grown(connection, BATCH, after)
            for session in batch:
                done += self._seal(session)
            if len(batch) < BATCH:
                return done
            after = batch[-1].id

    def _seal(self, session: Grown) -> bool:
        seq, hash_ = session.sealed_seq, session.sealed_hash
        while True:
            with self._database.read() as connection:
                page = log_store.after(connection, session.id, seq, PAGE)
            for row in page:
                seq, hash_ = row.seq, event_hash(hash_, row.seq, row.time, row.type, row.body)
            if len(page) < PAGE:
                break

        def work(unit: Unit) -> bool:
            if seq == session.sealed_seq or not store.seal(unit.connection, session, seq, hash_):
                return False
            known = {"from": session.sealed_seq, "seq": seq, "hash": hash_}
            self._trail.record(unit, session.tenant_id, Act.SESSION_SEALED, actor=SEALER, target=session.id, **known)
            return True

        return self._writer.run(work)
