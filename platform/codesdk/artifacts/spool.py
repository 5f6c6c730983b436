"""Receives bytes: writes them to a temporary file and hashes them, in bounded memory.

The file stays locked while its process writes it. A process that gets the lock knows that the writer has died, so the
files of killed processes are removed without guessing by age.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from codesdk.artifacts.artifact import ArtifactsUnavailable, ArtifactTooLarge
from codesdk.artifacts.digests import Hasher

SPOOL_SUFFIX = ".part"


class Spool:
    """A file that is being received."""

    def __init__(self, path: Path, file: IO[bytes], limit: int) -> None:
        self.path = path
        self.file = file
        """Positioned at the end while writing; readers seek."""
        self._limit = limit
        self._hasher = Hasher()

    def write(self, data: bytes) -> None:
        """Append the next bytes.

        Raises:
            ArtifactTooLarge: the size limit is exceeded.
            ArtifactsUnavailable: the file can't be written.
        """
        if self._hasher.size + len(data) > self._limit:
            raise ArtifactTooLarge(
                f"The artifact has more than {self._limit} bytes.",
                advice="Split it, or ask the operator to raise CODESDK_ARTIFACT_MAX_BYTES.",
            )
        self._hasher.update(data)
        try:
            self.file.write(data)
        except OSError as error:
            raise write_fault(self.path.parent, error) from error

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self._hasher.size

    @property
    def content_hash(self) -> str:
        """`sha256:<hex>` of what was written."""
        return self._hasher.content_hash()

    @property
    def digests(self) -> bytes:
        """The digests of its chunks."""
        return self._hasher.digests()


class SpoolDirectory:
    """The directory for files that are being received, by this process and others."""

    def __init__(self, directory: Path, limit: int) -> None:
        """Create the object. `limit`: maximum bytes per file."""
        self._directory = directory
        self._limit = limit

    @contextmanager
    def spool(self) -> Iterator[Spool]:
        """Create a file that is deleted at the end of the block unless a store took it.

        Raises:
            ArtifactsUnavailable: the directory is full or not writable.
        """
        try:
            path, file = self._create_locked()
        except OSError as error:
            raise write_fault(self._directory, error) from error
        try:
            yield Spool(path, file, self._limit)
        finally:
            path.unlink(missing_ok=True)
            _close(file)

    def sweep(self) -> int:
        """Remove the files of killed processes. Returns the count."""
        removed = 0
        for path in self._directory.glob(f"*{SPOOL_SUFFIX}") if self._directory.is_dir() else ():
            try:
                with path.open("rb") as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    path.unlink()
                    removed += 1
            except (BlockingIOError, FileNotFoundError):
                continue  # its writer is alive, or has just finished
        return removed

    def _create_locked(self) -> tuple[Path, IO[bytes]]:
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        while True:
            path = self._directory / f"{secrets.token_hex(8)}{SPOOL_SUFFIX}"
            file = path.open("x+b")
            fcntl.flock(file, fcntl.LOCK_EX)
            # If a sweep ran between the two lines above, the file has been unlinked.
            if path.exists() and os.path.samestat(path.stat(), os.fstat(file.fileno())):
                return path, file
            file.close()


def write_fault(place: Path, error: OSError) -> ArtifactsUnavailable:
    """Build the fault for a directory that can't be written."""
    return ArtifactsUnavailable(
        f"Artifacts cannot be written to {place}: {error}.",
        advice="Free up space, or fix the directory's owner and mode.",
    )


def _close(file: IO[bytes]) -> None:
    with suppress(OSError):  # a full disk refuses the rest of the buffer, which is no longer needed
        file.close()
