"""SHA-256 without `hashlib`, which loads OpenSSL: three megabytes in every sandbox that hashes a file."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    def sha256(data: bytes | bytearray = b"") -> Any:
        """Return a hash object with `update`."""
else:
    try:
        from _sha2 import sha256  # Python 3.12 and later
    except ImportError:
        try:
            from _sha256 import sha256
        except ImportError:
            from hashlib import sha256  # an interpreter built without the C modules


def text(found: Any) -> str:
    """Return `sha256:…` of the data hashed so far."""
    return "sha256:" + str(found.hexdigest())


def of(data: bytes | bytearray) -> str:
    """Return `sha256:…` of bytes."""
    return text(sha256(data))


def of_file(fd: int, limit: int) -> str:
    """Return `sha256:…` of an open file's next bytes, at most `limit`."""
    found = sha256()
    while limit > 0 and (part := os.read(fd, min(1 << 18, limit))):
        found.update(part)
        limit -= len(part)
    return text(found)
