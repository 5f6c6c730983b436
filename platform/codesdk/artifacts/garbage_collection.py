"""Removes bytes that nothing names, while others write. Why that is safe is in docs/explanation/artifacts.md.

In short: a record is added only in a transaction that finds the blob's row not doomed; bytes are removed only after a
commit that doomed the row and found no record; doomed rows stay doomed, and both transactions lock the row first.
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
"""Seconds after which an upload that never ended, and bytes that have no row at all, are taken for left over."""


class CollectionReport(FrozenModel):
    """What a collection removed."""

    blobs: int = 0
    """That no artifact named."""
    strays: int = 0
    """Bytes that the database does not know at all."""
    unfinished: int = 0
    """Writes that never ended."""


class GarbageCollector:
    """Collects for one database and its blob store. Several may run at once."""

    def __init__(
        self, *, blobs: Blobs, incoming: SpoolDirectory, database: Database, writer: Writer, clock: Clock
    ) -> None:
        self._blobs = blobs
        self._incoming = incoming
        self._database = database
        self._writer = writer
        self._clock = clock

    def collect(self, *, strays: bool = False, stale_s: float = STALE_S) -> CollectionReport:
        """Remove what nothing names.

        `strays`: also bytes that the database does not know, older than `stale_s` seconds. It never made them, so this
        is only right where the store's place belongs to this database alone.

        Raises:
            ArtifactsUnavailable: the store does not answer; what was doomed is taken up by the next collection.
        """
        unfinished = self._incoming.sweep() + self._blobs.sweep(stale_s)
        removed = 0
        while doomed := [key for key in self._unreferenced() if self._mark_for_deletion(key)]:
            for key in doomed:
                self._blobs.delete(key)
                self._delete_row(key)
            removed += len(doomed)
        return CollectionReport(
            blobs=removed, unfinished=unfinished, strays=self._delete_unknown(stale_s) if strays else 0
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
            # A row is committed before its key is first put, and no key is used twice: what is listed and has no row
            # now will never have one.
            with self._database.read() as connection:
                known = store.existing_keys(connection, (one.key for one in found))
            for one in found:
                if one.key not in known and one.changed_at < before:
                    self._blobs.delete(one.key)
                    removed += 1
        return removed
