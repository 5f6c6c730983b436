"""Hashes of each chunk, so that a range can be verified without reading the whole file."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

CHUNK_BYTES = 1024 * 1024
"""Bytes per digest. Reading a range costs at most two extra chunks; a GiB has 32 KiB of digests."""
DIGEST_BYTES = 32


class DigestMismatch(Exception):
    """A chunk differs from what was put."""


class Hasher:
    """Hashes a stream as a whole and per chunk."""

    def __init__(self) -> None:
        self._whole = hashlib.sha256()
        self._chunk = hashlib.sha256()
        self._in_chunk = 0
        self._digests = bytearray()
        self.size = 0
        """Bytes so far."""

    def update(self, data: bytes) -> None:
        """Add the next bytes."""
        self.size += len(data)
        self._whole.update(data)
        view = memoryview(data)
        while view:
            part = view[: CHUNK_BYTES - self._in_chunk]
            self._chunk.update(part)
            self._in_chunk += len(part)
            view = view[len(part) :]
            if self._in_chunk == CHUNK_BYTES:
                self._digests += self._chunk.digest()
                self._chunk, self._in_chunk = hashlib.sha256(), 0

    def content_hash(self) -> str:
        """Return `sha256:<hex>` of the whole."""
        return f"sha256:{self._whole.hexdigest()}"

    def digests(self) -> bytes:
        """Return the concatenated SHA-256 digests of the chunks. The last chunk may be shorter."""
        return bytes(self._digests) + (self._chunk.digest() if self._in_chunk else b"")


def verify_chunks(pieces: Iterator[bytes], digests: bytes, first_chunk: int) -> Iterator[bytes]:
    """Yield the same bytes in whole chunks, each after its hash was verified.

    `pieces` begins with chunk `first_chunk` and ends at the end of a chunk.

    Raises:
        DigestMismatch: a chunk is wrong, or there is one too many.
    """
    number, held = first_chunk, bytearray()
    for piece in pieces:
        held += piece
        while len(held) >= CHUNK_BYTES:
            yield _verify_chunk(bytes(held[:CHUNK_BYTES]), digests, number)
            del held[:CHUNK_BYTES]
            number += 1
    if held:
        yield _verify_chunk(bytes(held), digests, number)


def _verify_chunk(chunk: bytes, digests: bytes, number: int) -> bytes:
    if hashlib.sha256(chunk).digest() != digests[number * DIGEST_BYTES : (number + 1) * DIGEST_BYTES]:
        raise DigestMismatch(f"chunk {number}")
    return chunk
