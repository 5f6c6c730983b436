"""Bytes on their way in: written to a file of their own while they are hashed, in bounded memory.

The file is locked for as long as its process works on it. Whoever gets the lock knows that its writer has died, so
what a killed process left is removed without guessing by age.
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
    """One file that is being received."""

    def __init__(self, path: Path, file: IO[bytes], limit: int) -> None:
        self.path = path
        self.file = file
        """Positioned at the end while writing; readers seek."""
        self._limit = limit
        self._hasher = Hasher()

    def write(self, data: bytes) -> None:
        """The next bytes.

        Raises:
            ArtifactTooLarge: more than the limit.
            ArtifactsUnavailable: they cannot be written.
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
        """Bytes so far."""
        return self._hasher.size

    @property
    def content_hash(self) -> str:
        """`sha256:<hex>` of what was written."""
        return self._hasher.content_hash()

    @property
    def digests(self) -> bytes:
        """The hashes of its chunks."""
        return self._hasher.digests()


class SpoolDirectory:
    """The directory of the files that are being received, by this process and others."""

    def __init__(self, directory: Path, limit: int) -> None:
        """`limit`: the most bytes that one may have."""
        self._directory = directory
        self._limit = limit

    @contextmanager
    def spool(self) -> Iterator[Spool]:
        """A new file, gone at the end of the block unless a store took it.

        Raises:
            ArtifactsUnavailable: the directory is full or cannot be written.
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
        """Remove what processes left that were killed; returns how many files."""
        removed = 0
        for path in self._directory.glob(f"*{SPOOL_SUFFIX}") if self._directory.is_dir() else ():
            try:
                with path.open("rb") as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    path.unlink()
                    removed += 1
            except (BlockingIOError, FileNotFoundError):
                continue  # its writer lives, or was done just now
        return removed

    def _create_locked(self) -> tuple[Path, IO[bytes]]:
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        while True:
            path = self._directory / f"{secrets.token_hex(8)}{SPOOL_SUFFIX}"
            file = path.open("x+b")
            fcntl.flock(file, fcntl.LOCK_EX)
            # A sweep may have come between the two lines above: then the file has no name any more.
            if path.exists() and os.path.samestat(path.stat(), os.fstat(file.fileno())):
                return path, file
            file.close()


def write_fault(place: Path, error: OSError) -> ArtifactsUnavailable:
    """The fault for a directory that does not take bytes."""
    return ArtifactsUnavailable(
        f"Artifacts cannot be written to {place}: {error}.",
        advice="Make room, or mend the directory's owner and mode.",
    )


def _close(file: IO[bytes]) -> None:
    with suppress(OSError):  # a full disk refuses the buffer's rest, which nobody wants any more
        file.close()
