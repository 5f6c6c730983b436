"""Encrypts secrets that must be readable again, so they can't be hashed; the key stays outside the database (ADR 18)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
from collections.abc import Callable
from functools import cache

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from codesdk.errors import ExitCode, Fault

_NONCE = 12
"""Bytes of a random nonce of AES-GCM; safe for 2^32 values under one key (NIST SP 800-38D, 8.3)."""
_VERSION = "s1."


class SealBroken(Fault):
    """A sealed value cannot be opened with this installation's key."""

    code = "SEAL_BROKEN"
    status = 500
    exit_code = ExitCode.DATA

    def advice(self) -> str:
        """What to do."""
        return (
            "Give the processes the CODESDK_SEALING_KEY (or the file sealing.key) that it was sealed with, "
            "or create the endpoint again."
        )


class SecretCipher:
    """Encrypts and signs with keys derived from one master key, one for each purpose."""

    def __init__(self, key: Callable[[], bytes]) -> None:
        """`key`: at least 256 random bits; read on first use, because most processes never need it."""
        self._key = cache(key)

    def close(self, secret: str, purpose: str) -> str:
        """Encrypt a secret for storage. It opens for this purpose only."""
        nonce = os.urandom(_NONCE)
        sealed = AESGCM(self._derived("seal")).encrypt(nonce, secret.encode(), purpose.encode())
        return _VERSION + base64.urlsafe_b64encode(nonce + sealed).decode()

    def open(self, sealed: str, purpose: str) -> str:
        """Decrypt a secret.

        Raises:
            SealBroken: sealed with another key or for another purpose, or modified.
        """
        try:
            content = base64.urlsafe_b64decode(sealed.removeprefix(_VERSION))
            opened = AESGCM(self._derived("seal")).decrypt(content[:_NONCE], content[_NONCE:], purpose.encode())
        except (ValueError, InvalidTag) as error:
            raise SealBroken(f"A secret of {purpose.partition(':')[2] or purpose} cannot be opened.") from error
        return opened.decode()

    def mark(self, purpose: str, *facts: str) -> bytes:
        """An HMAC-SHA256 over the facts, in order. Compare it in constant time."""
        # Each with its length, so that no two lists give the same message.
        message = b"".join(len(fact.encode()).to_bytes(8, "big") + fact.encode() for fact in facts)
        return hmac.digest(self._derived(f"mark:{purpose}"), message, hashlib.sha256)

    def _derived(self, purpose: str) -> bytes:
        return hmac.digest(self._key(), f"codesdk:{purpose}".encode(), hashlib.sha256)
