"""Signatures of Standard Webhooks 1.0 (`v1`, HMAC-SHA256), by its own library."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Sequence
from datetime import datetime

from standardwebhooks.webhooks import Webhook

SECRET_PREFIX = "whsec_"  # noqa: S105 (a prefix, no secret)
SECRET_BYTES = 32
"""Of a secret; the specification asks for 24 to 64."""


def new_secret() -> str:
    """A new signing secret in the form that receivers' libraries take."""
    return SECRET_PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def headers(message_id: str, body: str, at: datetime, keys: Sequence[str]) -> dict[str, str]:
    """What goes with the body: one signature for each secret, newest first."""
    signatures = [Webhook(key).sign(message_id, at, body) for key in keys]
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": " ".join(signatures),
    }
