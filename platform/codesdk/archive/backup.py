"""Backs up an embedded installation while it runs.

The order makes it consistent: first a snapshot of the database, then the artifact bytes that the *snapshot* names. Bytes
are durable before their records, and are kept for a day after their last record is removed.
"""

from __future__ import annotations

import os
import secrets
import shutil
from importlib.metadata import version
from pathlib import Path

from codesdk.archive import manifest, store
from codesdk.archive.manifest import Entry, Manifest
from codesdk.artifacts.blobs import BlobMissing, Blobs
from codesdk.artifacts.directory import DirectoryBlobs
from codesdk.artifacts.spool import SpoolDirectory
from codesdk.artifacts.store import Blob
from codesdk.bootstrap.maintenance import MaintenanceServices
from codesdk.domain.clock import to_rfc3339
from codesdk.errors import ExitCode, Fault
from codesdk.storage.database import Database
from codesdk.storage.sqlite_copy import copy_database

DATABASE = "codesdk.db"
EXTRA_FILES = ("operator.key", "images.yaml")
"""Files of the data directory to copy, besides database and artifacts. Not the instance id: a copy gets its own."""


class BackupRefused(Fault):
    """The backup can't be made there, or not with this command."""

    code = "BACKUP_REFUSED"
    status = 400
    exit_code = ExitCode.CANNOT_WRITE


def create_backup(record: MaintenanceServices, target: Path) -> Manifest:
    """Create a backup in the new directory `target`. It has a temporary name until it is complete.

    Raises:
        BackupRefused: `target` exists or can't be written, or the database is PostgreSQL.
        CopyFailed, ArtifactsUnavailable: copying failed. Nothing of the backup remains.
    """
    if not record.database.is_sqlite:
        raise BackupRefused(
            "The database is PostgreSQL, which has its own backup tools.",
            advice="Run pg_dump first and copy the artifacts after it, as the operator's guide shows.",
        )
    if target.exists():
        raise BackupRefused(f"{target} exists already.", advice="Name a new directory; a backup never replaces one.")
    fresh = target.with_name(f".{target.name}.partial-{secrets.token_hex(4)}")
    try:
        fresh.mkdir(mode=0o700, parents=True)
        made = _copy_contents(record, fresh)
        rename_durably(fresh, target)
    except OSError as error:
        raise BackupRefused(
            f"{target} cannot be written: {error}.", advice="Free up space, or name another directory."
        ) from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return made


def _copy_contents(record: MaintenanceServices, root: Path) -> Manifest:
    copy_database(record.database, root / DATABASE)
    (root / DATABASE).chmod(0o600)
    files, damaged = _copy_blobs(record.blobs, _blobs_in_copy(root / DATABASE), root)
    files.append(manifest.entry(root, root / DATABASE))
    for name in EXTRA_FILES:
        if (record.settings.data_dir / name).is_file():
            shutil.copyfile(record.settings.data_dir / name, root / name)
            (root / name).chmod(0o600)
            files.append(manifest.entry(root, root / name))
    made = Manifest(
        version=version("codesdk"),
        instance=record.settings.instance_id(),
        created_at=to_rfc3339(record.clock.now()),
        files=tuple(sorted(files, key=lambda one: one.path)),
        damaged=tuple(damaged),
    )
    manifest.write(root, made)
    return made


def _blobs_in_copy(copy: Path) -> list[Blob]:
    database = Database(f"sqlite:///{copy}")
    try:
        with database.read() as connection:
            return store.named_blobs(connection)
    finally:
        database.close()
        for suffix in ("-wal", "-shm"):
            copy.with_name(copy.name + suffix).unlink(missing_ok=True)


def _copy_blobs(source: Blobs, wanted: list[Blob], root: Path) -> tuple[list[Entry], list[str]]:
    incoming, target = (
        SpoolDirectory(root / "incoming", max((one.size for one in wanted), default=0)),
        DirectoryBlobs(root / "artifacts"),
    )
    files, damaged = [], []
    for blob in wanted:
        with incoming.spool() as spool:
            try:
                for piece in source.read(blob.key, 0, blob.size):
                    spool.write(piece)
            except BlobMissing:
                damaged.append(blob.content_hash)
                continue
            if spool.content_hash != blob.content_hash:
                damaged.append(blob.content_hash)
                continue
            target.put(blob.key, spool)
        digest = blob.content_hash.removeprefix("sha256:")
        files.append(Entry(path=f"artifacts/{blob.key[:2]}/{blob.key}", sha256=digest, size=blob.size))
    if (root / "incoming").exists():
        (root / "incoming").rmdir()
    return files, damaged


def rename_durably(fresh: Path, target: Path) -> None:
    """Rename directory `fresh` to `target` after syncing its content, so that `target` survives a power loss complete.

    Raises:
        OSError: `target` exists or can't be written.
    """
    for folder, _, names in os.walk(fresh):
        for name in names:
            _sync(Path(folder, name))
        _sync(Path(folder))
    fresh.rename(target)
    _sync(target.parent)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
