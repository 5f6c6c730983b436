"""Bearer secrets: generated once, displayed once, stored as a hash."""

from __future__ import annotations

import hashlib
import secrets

KEY_PREFIX = "csdk_key_"
TOKEN_PREFIX = "csdk_ses_"  # noqa: S105 (a prefix that scanners can find, not a secret)
DISPLAYED_CHARS = 6
"""Characters after the prefix by which people recognise a key: 36 of its 256 bits, so 220 stay hidden."""


def mint_secret(prefix: str) -> str:
    """A new secret of 256 random bits; the prefix tells people and leak scanners what it is."""
    return prefix + secrets.token_urlsafe(32)


def hash_secret(secret: str) -> str:
    """What the database keeps. A fast hash is right here: the secret has 256 bits, guessing it is hopeless."""
    return "sha256:" + hashlib.sha256(secret.encode()).hexdigest()


def display_prefix(secret: str) -> str:
    """The beginning of an API key, which lists may show."""
    return secret[: len(KEY_PREFIX) + DISPLAYED_CHARS]
