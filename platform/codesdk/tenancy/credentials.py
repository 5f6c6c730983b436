"""Bearer secrets: generated once, displayed once, stored as a hash."""

from __future__ import annotations

import hashlib
import secrets

KEY_PREFIX = "csdk_key_"
TOKEN_PREFIX = "csdk_ses_"  # noqa: S105 (a prefix that scanners can find, not a secret)
DISPLAYED_CHARS = 6
"""Characters after the prefix by which people recognise a key: 36 of its 256 bits, so 220 stay hidden."""


def mint_secret(prefix: str) -> str:
    """Create a secret of 256 random bits. The prefix tells people and leak scanners what it is."""
    return prefix + secrets.token_urlsafe(32)


def hash_secret(secret: str) -> str:
    """Hash a secret for the database. A fast hash is enough: 256 random bits can't be guessed."""
    return "sha256:" + hashlib.sha256(secret.encode()).hexdigest()


def display_prefix(secret: str) -> str:
    """Return the beginning of an API key, for display."""
    return secret[: len(KEY_PREFIX) + DISPLAYED_CHARS]
