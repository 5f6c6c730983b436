"""Artifacts in a local directory: one file per content hash, shared by every record that names it."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from codesdk.artifacts import store
from codesdk.artifacts.artifact import ArtifactDamaged, ArtifactsUnavailable, ArtifactUnknown
from codesdk.domain.canonical import bytes_hash
from codesdk.domain.clock import Clock
from codesdk.domain.ids import ArtifactId, Ids, Kind, SessionId, TenantId
from codesdk.domain.records import Artifact
from codesdk.storage.database import Database
from codesdk.storage.writer import Unit


class Artifacts:
    """Bytes first, then the record in the caller's unit: a record never names bytes that are not durable."""

    def __init__(self, root: Path, database: Database, clock: Clock, ids: Ids) -> None:
        self._root = root
        self._database = database
        self._clock = clock
        self._ids = ids

    def keep(
        self, content: bytes, tenant: TenantId, session: SessionId | None, *, content_type: str, name: str
    ) -> Artifact:
        """Make `content` durable and describe it; `record` it in the unit that refers to it.

        Raises:
            ArtifactsUnavailable: the directory is full or cannot be written.
        """
        content_hash = bytes_hash(content)
        try:
            self._write(content_hash, content)
        except OSError as error:
            advice = "Make room, or mend the directory's owner and mode."
            raise ArtifactsUnavailable(
                f"Artifacts cannot be written to {self._root}: {error}.", advice=advice
            ) from error
        return Artifact(
            id=ArtifactId(self._ids.new(Kind.ARTIFACT)),
            tenant_id=tenant,
            session_id=session,
            content_hash=content_hash,
            size=len(content),
            content_type=content_type,
            name=name,
        )

    def record(self, unit: Unit, artifact: Artifact) -> None:
        """Add the record with the unit's commit."""
        store.insert(unit.connection, artifact, self._clock.now().timestamp())

    def find(self, tenant: TenantId, artifact: str) -> Artifact:
        """The record.

        Raises:
            ArtifactUnknown: not there, or another tenant's.
        """
        with self._database.read() as connection:
            found = store.find(connection, tenant, artifact)
        if found is None:
            raise ArtifactUnknown(f"There is no artifact {artifact}.")
        return found

    def read(self, artifact: Artifact) -> bytes:
        """The bytes, checked against the hash.

        Raises:
            ArtifactDamaged: they are gone or changed.
        """
        try:
            content = self._path(artifact.content_hash).read_bytes()
        except FileNotFoundError:
            content = None
        if content is None or bytes_hash(content) != artifact.content_hash:
            raise ArtifactDamaged(
                f"The stored bytes of artifact {artifact.id} are gone or damaged.",
                advice="Restore the artifacts directory from a backup of the same time as the database.",
            )
        return content

    def _path(self, content_hash: str) -> Path:
        digest = content_hash.removeprefix("sha256:")
        return self._root / digest[:2] / digest

    def _write(self, content_hash: str, content: bytes) -> None:
        path = self._path(content_hash)
        if path.exists():
            return
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fresh = path.with_name(f".{path.name}-{os.getpid()}-{secrets.token_hex(4)}")
        try:
            with fresh.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            fresh.rename(path)
        except OSError:
            fresh.unlink(missing_ok=True)
            raise
        # A name is only durable once its directory is, and a new directory once its parent is.
        for directory in (path.parent, self._root):
            _sync(directory)


def _sync(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
