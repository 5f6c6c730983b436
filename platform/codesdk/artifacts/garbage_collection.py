"""Removes unreferenced blobs while others write. docs/explanation/artifacts.md shows why that is safe.

In short: a record is added only in a transaction that finds the blob's row not doomed. Bytes are removed only after a
commit that doomed the row and found no record. Doomed rows stay doomed, and both transactions lock the row first.
"""

from __future__ import annotations

from itertools import islice

from codesdk.artifacts import store
from codesdk.artifacts.blobs import Blobs
from codesdk.artifacts.spool import SpoolDirectory
from codesdk.domain.clock import Clock
from codesdk.domain.model import FrozenModel
from codesdk.storage.database import Database
from codesdk.storage.writer import Writer

BATCH = 100
STALE_S = 24 * 3600.0
"""Age in seconds after which unfinished uploads, and bytes without a row, count as abandoned."""


class CollectionReport(FrozenModel):
    """What one collection removed."""

    blobs: int = 0
    """Blobs that no artifact referenced."""
    strays: int = 0
    """Objects that the database doesn't know."""
    unfinished: int = 0
    """Abandoned writes."""


class GarbageCollector:
    """Collects the garbage of one database and its blob store. Several may run at once."""

    def __init__(
        self, *, blobs: Blobs, incoming: SpoolDirectory, database: Database, writer: Writer, clock: Clock
    ) -> None:
        self._blobs = blobs
        self._incoming = incoming
        self._database = database
        self._writer = writer
        self._clock = clock

    def collect(self, *, delete_unknown: bool = False, stale_s: float = STALE_S) -> CollectionReport:
        """Remove unreferenced blobs and abandoned writes.

        `delete_unknown`: also remove objects that the database doesn't know and that are older than `stale_s` seconds. Use it
        only if the blob store's location belongs to this database alone.

        Raises:
            ArtifactsUnavailable: the store doesn't answer. The next collection continues with what is doomed.
        """
        unfinished = self._incoming.sweep() + self._blobs.sweep(stale_s)
        removed = 0
        while doomed := [key for key in self._unreferenced() if self._mark_for_deletion(key)]:
            for key in doomed:
                self._blobs.delete(key)
                self._delete_row(key)
            removed += len(doomed)
        return CollectionReport(
            blobs=removed, unfinished=unfinished, strays=self._delete_unknown(stale_s) if delete_unknown else 0
        )

    def _unreferenced(self) -> list[str]:
        with self._database.read() as connection:
            return store.unreferenced(connection, BATCH)

    def _mark_for_deletion(self, key: str) -> bool:
        return self._writer.run(lambda unit: store.mark_for_deletion(unit.connection, key))

    def _delete_row(self, key: str) -> None:
        self._writer.run(lambda unit: store.delete_row(unit.connection, key))

    def _delete_unknown(self, stale_s: float) -> int:
        before = self._clock.now().timestamp() - stale_s
        removed = 0
        listed = self._blobs.keys()
        while found := list(islice(listed, BATCH)):
            # A row is committed before its key is first put, and no key is reused: an object without a row now never
            # gets one.
            with self._database.read() as connection:
                known = store.existing_keys(connection, (one.key for one in found))
            for one in found:
                if one.key not in known and one.changed_at < before:
                    self._blobs.delete(one.key)
                    removed += 1
        return removed
