"""Artifacts: records in the database, bytes in a blob store.

Bytes are stored first, then the record in the caller's unit, so that a record always refers to durable bytes.
docs/explanation/artifacts.md shows that no record ever refers to collected bytes.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress

from codesdk.artifacts import store
from codesdk.artifacts.artifact import (
    ArtifactCollected,
    ArtifactDamaged,
    ArtifactInUse,
    ArtifactUnknown,
    StoredArtifact,
)
from codesdk.artifacts.blobs import BlobMissing, Blobs
from codesdk.artifacts.digests import CHUNK_BYTES, DigestMismatch, Hasher, verify_chunks
from codesdk.artifacts.spool import Spool, SpoolDirectory
from codesdk.artifacts.store import Blob
from codesdk.domain.clock import Clock
from codesdk.domain.ids import ArtifactId, IdKind, Ids, SessionId, TenantId
from codesdk.domain.quotas import Quotas, Resource
from codesdk.errors import Fault, InternalFault
from codesdk.storage.database import Database
from codesdk.storage.writer import Unit, Writer

UNRECORDED_TTL_S = 24 * 3600.0
"""Seconds that bytes may wait for their record. A slower put is refused rather than lost silently."""

_log = logging.getLogger(__name__)


class ArtifactService:
    """The artifacts of one database."""

    def __init__(
        self,
        *,
        blobs: Blobs,
        incoming: SpoolDirectory,
        database: Database,
        writer: Writer,
        clock: Clock,
        ids: Ids,
        quotas: Quotas[Unit],
        hold_s: float = UNRECORDED_TTL_S,
    ) -> None:
        """Create the service. `hold_s`: seconds until bytes without a record may be collected."""
        self._blobs = blobs
        self._incoming = incoming
        self._database = database
        self._writer = writer
        self._clock = clock
        self._ids = ids
        self._quotas = quotas
        self._hold_s = hold_s

    def spool(self) -> AbstractContextManager[Spool]:
        """Open a spool for streamed bytes. Pass it to `keep_spool` before its block ends.

        Raises:
            ArtifactsUnavailable: the disk is full or not writable.
        """
        return self._incoming.spool()

    def put(
        self, content: bytes, tenant: TenantId, session: SessionId | None, *, content_type: str, name: str
    ) -> StoredArtifact:
        """Store `content` durably and describe it. Call `record` in the unit that refers to it.

        Raises:
            ArtifactsUnavailable: the store is full, not writable or doesn't answer.
            ArtifactTooLarge: the content exceeds the size limit.
        """
        with self.spool() as spool:
            spool.write(content)
            return self.keep_spool(spool, tenant, session, content_type=content_type, name=name)

    def keep_spool(
        self, spool: Spool, tenant: TenantId, session: SessionId | None, *, content_type: str, name: str
    ) -> StoredArtifact:
        """Store the spool's bytes, like `put`."""
        fresh = f"{spool.content_hash.removeprefix('sha256:')}-{secrets.token_hex(4)}"
        blob = Blob(fresh, spool.content_hash, spool.size, spool.digests)
        key, there = self._writer.run(lambda unit: store.hold_blob(unit.connection, blob, self._hold_s))
        if not there or self._blobs.size(key) != spool.size:
            self._blobs.put(key, spool)
        return StoredArtifact(
            id=ArtifactId(self._ids.new(IdKind.ARTIFACT)),
            tenant_id=tenant,
            session_id=session,
            content_hash=spool.content_hash,
            size=spool.size,
            content_type=content_type,
            name=name,
            created_at=self._clock.now().timestamp(),
            blob_key=key,
        )

    def record(self, unit: Unit, artifact: StoredArtifact) -> None:
        """Add the record with the unit's commit.

        Raises:
            QuotaExceeded: the tenant's limit of artifact bytes is reached.
            ArtifactCollected: more than `hold_s` seconds have passed since the bytes were stored.
        """
        self._quotas.reserve(unit, artifact.tenant_id, Resource.ARTIFACT_BYTES, artifact.size)
        if not store.mark_stored(unit.connection, artifact.blob_key, self._hold_s):
            raise ArtifactCollected("The bytes waited too long for their record.", advice="Send them again.")
        store.insert(unit.connection, artifact)

    def supersede(self, unit: Unit, artifact: StoredArtifact) -> bool:
        """Remove a superseded record, unless an open session starts from it. False if it was kept."""
        self._quotas.lock_tenant(unit, artifact.tenant_id)
        store.lock_artifact(unit.connection, artifact.id, to_remove=True)
        if store.seeds_open_session(unit.connection, artifact.id):
            return False
        self._remove_record(unit, artifact)
        return True

    def find(self, tenant: TenantId, artifact: str) -> StoredArtifact:
        """Return the record.

        Raises:
            ArtifactUnknown: it doesn't exist or belongs to another tenant.
        """
        with self._database.read() as connection:
            found = store.find(connection, tenant, artifact)
        if found is None:
            raise ArtifactUnknown(f"There is no artifact {artifact}.")
        return found

    def lock(self, unit: Unit, tenant: TenantId, artifact: str) -> None:
        """Lock the record until the unit ends, so that it can't be removed meanwhile.

        Raises:
            ArtifactUnknown: it doesn't exist or belongs to another tenant.
        """
        if store.find(unit.connection, tenant, artifact) is None or not store.lock_artifact(unit.connection, artifact):
            raise ArtifactUnknown(f"There is no artifact {artifact}.")

    def listing(
        self, tenant: TenantId, session: str | None = None, after: str | None = None, limit: int = 100
    ) -> list[StoredArtifact]:
        """List the tenant's records, newest first. `after`: the last id of the previous page.

        Raises:
            ArtifactUnknown: the tenant has no artifact `after`.
        """
        last = self.find(tenant, after) if after else None
        with self._database.read() as connection:
            return store.listing(connection, tenant, session, (last.created_at, last.id) if last else None, limit)

    def delete(
        self, tenant: TenantId, artifact: str, in_same_unit: Callable[[Unit, StoredArtifact], None] = lambda *_: None
    ) -> StoredArtifact:
        """Remove the record. The next collection removes its bytes if no other record refers to them.

        `in_same_unit`: further work for the same transaction.

        Raises:
            ArtifactUnknown: it doesn't exist or belongs to another tenant.
            ArtifactInUse: an open session starts from it.
        """
        found = self.find(tenant, artifact)

        def work(unit: Unit) -> None:
            self._delete(unit, found)
            in_same_unit(unit, found)

        self._writer.run(work)
        return found

    def of_session(self, session: SessionId) -> list[StoredArtifact]:
        """Every record of a session, oldest first. Checks no tenant."""
        with self._database.read() as connection:
            return store.of_session(connection, session)

    def find_content(self, session: SessionId, content_hash: str) -> StoredArtifact | None:
        """The session's newest artifact with that content; None if it has none. Checks no tenant."""
        with self._database.read() as connection:
            return store.find_content(connection, session, content_hash)

    def delete_of_session(self, unit: Unit, session: SessionId) -> int:
        """Remove every record of a session and return the count. Checks no tenant."""
        found = store.of_session(unit.connection, session)
        for artifact in found:
            self._remove_record(unit, artifact)
        return len(found)

    def read(self, artifact: StoredArtifact) -> bytes:
        """Return all bytes at once, for small artifacts.

        Raises:
            ArtifactDamaged: the bytes are missing or changed.
        """
        return b"".join(self.stream(artifact))

    def stream(self, artifact: StoredArtifact, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        """Yield the bytes from `start`, in pieces of at most 1 MiB, each verified first.

        Raises:
            ArtifactDamaged: at the first missing or changed piece. ArtifactsUnavailable: the store doesn't answer.
        """
        end = artifact.size if length is None else min(artifact.size, start + length)
        if start >= end:
            return
        blob = self._blob(artifact)
        first, last = start // CHUNK_BYTES, (end - 1) // CHUNK_BYTES
        begin, until = first * CHUNK_BYTES, min((last + 1) * CHUNK_BYTES, artifact.size)
        try:
            digests = blob.digests if blob.digests is not None else self._digests(blob)
            pieces = self._blobs.read(blob.key, begin, until - begin)
            place = begin
            for chunk in verify_chunks(pieces, digests, first):
                yield chunk[max(0, start - place) : end - place]
                place += len(chunk)
        except (BlobMissing, DigestMismatch) as error:
            self._mark_damaged(blob)
            raise ArtifactDamaged(
                f"The stored bytes of artifact {artifact.id} are gone or damaged.",
                advice="Put the same bytes again, or restore them from a backup, as the operator's guide shows.",
                details={"artifact_id": artifact.id, "content_hash": artifact.content_hash},
            ) from error

    def _blob(self, artifact: StoredArtifact) -> Blob:
        with self._database.read() as connection:
            found = store.blob(connection, artifact.blob_key)
        if found is None:
            raise InternalFault(f"StoredArtifact {artifact.id} names a blob that has no row.")
        return found

    def _digests(self, blob: Blob) -> bytes:
        """Compute the chunk digests of a blob from an older version, which has none. Reads the whole blob."""
        hasher = Hasher()
        for piece in self._blobs.read(blob.key):
            hasher.update(piece)
        if hasher.content_hash() != blob.content_hash:
            raise DigestMismatch(blob.content_hash)
        return hasher.digests()

    def _mark_damaged(self, blob: Blob) -> None:
        _log.error("the bytes of blob %s are gone or damaged", blob.key)
        with suppress(Fault):  # the caller gets ArtifactDamaged in any case
            self._writer.run(lambda unit: store.mark_damaged(unit.connection, blob.key))

    def _delete(self, unit: Unit, artifact: StoredArtifact) -> None:
        self._quotas.lock_tenant(unit, artifact.tenant_id)
        store.lock_artifact(
            unit.connection, artifact.id, to_remove=True
        )  # first: a session that starts from it may be opening
        if store.seeds_open_session(unit.connection, artifact.id):
            raise ArtifactInUse(
                f"An open session starts from artifact {artifact.id}.", advice="Close the session first."
            )
        self._remove_record(unit, artifact)

    def _remove_record(self, unit: Unit, artifact: StoredArtifact) -> None:
        # Lock the tenant's row before the blob's, like `record`. The other order could deadlock.
        self._quotas.lock_tenant(unit, artifact.tenant_id)
        if store.remove(unit.connection, artifact, self._hold_s):
            self._quotas.release(unit, artifact.tenant_id, Resource.ARTIFACT_BYTES, artifact.size)
