"""The port to blob storage. The database decides what a key means and when its bytes may be deleted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from codesdk.artifacts.spool import Spool
from codesdk.errors import InternalFault


class BlobMissing(InternalFault):
    """The store has no bytes for the key, or fewer than were put."""

    code = "BLOB_MISSING"


class BlobInfo(NamedTuple):
    """An object in a blob store."""

    key: str
    size: int
    """Bytes."""
    changed_at: float
    """Seconds since the epoch, by the store's clock."""


class Blobs(Protocol):
    """Stores bytes under keys. Every implementation passes tests/contract/test_blobs.py.

    Keys are lower-case hexadecimal digits with an optional suffix after a dash. Implementations need not be safe
    against a `delete` of a key that is being put or read: callers prevent that (see
    `codesdk.artifacts.garbage_collection`).

    Every method may raise `ArtifactsUnavailable`.
    """

    def put(self, key: str, spool: Spool) -> None:
        """Store the spool's bytes durably under `key`, all or nothing. Repeating it is allowed."""
        ...

    def read(self, key: str, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        """Yield the bytes from `start` on, in pieces of any size, unverified.

        Raises:
            BlobMissing: there are no bytes, or too few. Raised no earlier than at the first piece.
        """
        ...

    def size(self, key: str) -> int | None:
        """Return the number of bytes under the key; None if there are none."""
        ...

    def delete(self, key: str) -> None:
        """Delete the bytes. Deleting a missing key does nothing."""
        ...

    def keys(self) -> Iterator[BlobInfo]:
        """List all stored objects, in any order."""
        ...

    def sweep(self, older_than_s: float) -> int:
        """Remove the remains of writes that began over `older_than_s` seconds ago and never finished. Returns a count."""
        ...

    def close(self) -> None:
        """Close connections."""
        ...
