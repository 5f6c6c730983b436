"""Blobs in a local directory: one file per key, in 256 folders."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from codesdk.artifacts.artifact import ArtifactsUnavailable
from codesdk.artifacts.blobs import BlobInfo, BlobMissing
from codesdk.artifacts.spool import Spool, write_fault

READ_BYTES = 256 * 1024
"""Bytes per read."""


class DirectoryBlobs:
    """Blobs under `root`. Spools must be on the same file system, because a rename turns them into blobs."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._durable: set[Path] = set()
        """Folders that this process has synced to their parent. The process that created one may have died before that.
        """

    def put(self, key: str, spool: Spool) -> None:
        """Store the spool's bytes durably under `key`, all or nothing. Repeating it is allowed."""
        path = self._path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            spool.file.flush()
            os.fsync(spool.file.fileno())
            spool.path.rename(path)
            # A file name is durable once its directory is synced, and a new directory once its parent is.
            _sync(path.parent)
            if path.parent not in self._durable:
                _sync(self._root)
                self._durable.add(path.parent)
        except OSError as error:
            raise write_fault(self._root, error) from error

    def read(self, key: str, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        """Yield the bytes from `start` on, in pieces."""
        try:
            with self._path(key).open("rb") as file:
                file.seek(start)
                left = length
                while left is None or left > 0:
                    piece = file.read(READ_BYTES if left is None else min(READ_BYTES, left))
                    if not piece:
                        break
                    left = None if left is None else left - len(piece)
                    yield piece
        except FileNotFoundError as error:
            raise BlobMissing(f"There is no {self._path(key)}.") from error
        except OSError as error:
            raise _read_fault(self._root, error) from error
        if left:
            raise BlobMissing(f"{self._path(key)} is {left} bytes too short.")

    def size(self, key: str) -> int | None:
        """Return the number of bytes under the key; None if there are none."""
        try:
            return self._path(key).stat().st_size
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _read_fault(self._root, error) from error

    def delete(self, key: str) -> None:
        """Delete the bytes. Deleting a missing key does nothing."""
        try:
            self._path(key).unlink(missing_ok=True)
        except OSError as error:
            raise write_fault(self._root, error) from error

    def keys(self) -> Iterator[BlobInfo]:
        """List all stored objects."""
        for path in self._root.glob("[0-9a-f][0-9a-f]/*"):
            try:
                found = path.stat()
            except FileNotFoundError:
                continue
            yield BlobInfo(path.name, found.st_size, found.st_mtime)

    def sweep(self, older_than_s: float) -> int:  # noqa: ARG002
        """Do nothing: unfinished writes are spools, which `SpoolDirectory.sweep` removes."""
        return 0

    def close(self) -> None:
        """Do nothing: no file stays open."""

    def _path(self, key: str) -> Path:
        return self._root / key[:2] / key


def _read_fault(place: Path, error: OSError) -> ArtifactsUnavailable:
    return ArtifactsUnavailable(
        f"Artifacts cannot be read from {place}: {error}.",
        advice="Check the disk, and the directory's owner and mode.",
    )


def _sync(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
