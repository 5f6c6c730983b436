"""Blobs in memory: the port's fake, for tests and embedding."""

from __future__ import annotations

from collections.abc import Iterator

from codesdk.artifacts.blobs import BlobInfo, BlobMissing
from codesdk.artifacts.spool import Spool
from codesdk.domain.clock import Clock


class MemoryBlobs:
    """Blobs that live as long as the process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.content: dict[str, tuple[bytes, float]] = {}
        """Bytes and time of change, by key. Tests damage them here."""

    def put(self, key: str, spool: Spool) -> None:
        """Store the spool's bytes."""
        spool.file.seek(0)
        self.content[key] = (spool.file.read(), self._clock.now().timestamp())

    def read(self, key: str, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        """Yield the bytes from `start` on, in one piece."""
        if key not in self.content:
            raise BlobMissing(f"There is no {key}.")
        whole = self.content[key][0]
        piece = whole[start:] if length is None else whole[start : start + length]
        if length is not None and len(piece) < length:
            raise BlobMissing(f"{key} is {length - len(piece)} bytes too short.")
        if piece:
            yield piece

    def size(self, key: str) -> int | None:
        """Return the number of bytes under the key; None if there are none."""
        return len(self.content[key][0]) if key in self.content else None

    def delete(self, key: str) -> None:
        """Delete the bytes."""
        self.content.pop(key, None)

    def keys(self) -> Iterator[BlobInfo]:
        """List all stored objects."""
        for key, (content, changed_at) in list(self.content.items()):
            yield BlobInfo(key, len(content), changed_at)

    def sweep(self, older_than_s: float) -> int:  # noqa: ARG002
        """Do nothing: writes are never unfinished here."""
        return 0

    def close(self) -> None:
        """Do nothing: there are no connections."""
