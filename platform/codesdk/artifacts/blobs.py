"""The port to blob storage. The database decides what a key means and when its bytes may be deleted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from codesdk.artifacts.spool import Spool
from codesdk.errors import InternalFault


class BlobMissing(InternalFault):
    """The store has no bytes under that key, or fewer than were put."""

    code = "BLOB_MISSING"


class BlobInfo(NamedTuple):
    """What a store holds under one key."""

    key: str
    size: int
    """Bytes."""
    changed_at: float
    """Seconds since the epoch, by the store's clock."""


class Blobs(Protocol):
    """Keeps bytes under keys. Every implementation passes tests/contract/test_blobs.py.

    Keys are lower-case hexadecimal digits with an optional suffix after a dash. Nothing here is safe against a `delete`
    of a key that is being put or read: the callers see to that (`codesdk.artifacts.garbage_collection` says how).

    Every method may raise `ArtifactsUnavailable`.
    """

    def put(self, key: str, spool: Spool) -> None:
        """Make the spool's bytes durable under `key`, whole or not at all; again is no error."""
        ...

    def read(self, key: str, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        """The bytes from `start` on, in pieces of any size, as they come; they are not checked here.

        Raises:
            BlobMissing: the key has none, or they end too early; at the first piece at the earliest.
        """
        ...

    def size(self, key: str) -> int | None:
        """Bytes under the key; None where there are none."""
        ...

    def delete(self, key: str) -> None:
        """Remove them; of a key that has none is no error."""
        ...

    def keys(self) -> Iterator[BlobInfo]:
        """Everything that is there, in no order."""
        ...

    def sweep(self, older_than_s: float) -> int:
        """Remove what writes left that never ended, and began longer ago than that; returns how many."""
        ...

    def close(self) -> None:
        """Let go of connections."""
        ...
