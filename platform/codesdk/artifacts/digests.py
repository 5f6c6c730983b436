"""Hashes of each chunk, so that a range can be verified without reading the whole file."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

CHUNK_BYTES = 1024 * 1024
"""Bytes that one digest covers. A range costs at most two more of them than it asks for; a GiB has 32 KiB of digests."""
DIGEST_BYTES = 32


class DigestMismatch(Exception):
    """A chunk is not what was put in."""


class Hasher:
    """Hashes what passes: the whole, and each chunk."""

    def __init__(self) -> None:
        self._whole = hashlib.sha256()
        self._chunk = hashlib.sha256()
        self._in_chunk = 0
        self._digests = bytearray()
        self.size = 0
        """Bytes so far."""

    def update(self, data: bytes) -> None:
        """The next bytes."""
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
        """`sha256:<hex>` of the whole."""
        return f"sha256:{self._whole.hexdigest()}"

    def digests(self) -> bytes:
        """The chunks' SHA-256, one after the other; the last chunk may be a short one."""
        return bytes(self._digests) + (self._chunk.digest() if self._in_chunk else b"")


def verify_chunks(pieces: Iterator[bytes], digests: bytes, first_chunk: int) -> Iterator[bytes]:
    """The same bytes as whole chunks, each given out only once its hash is right.

    `pieces` begins with chunk `first_chunk` and ends with a chunk's end.

    Raises:
        Mismatch: a chunk is wrong, or one more than there should be.
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
