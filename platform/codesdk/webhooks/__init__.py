"""Outgoing notifications: signed webhooks, chat and mail, and one-time links that answer an approval."""

from codesdk.webhooks.one_time_link import (
    LinkExpired,
    LinkInvalid,
    LinkMismatch,
    LinkUsed,
    LinkViewOnly,
    LinkWithdrawn,
    OneTimeLink,
)
from codesdk.webhooks.one_time_link_service import LINK_TOKEN_PREFIX, OneTimeLinkService
from codesdk.webhooks.secret_encryption import SealBroken, SecretCipher

__all__ = [
    "LINK_TOKEN_PREFIX",
    "LinkExpired",
    "LinkInvalid",
    "LinkMismatch",
    "LinkUsed",
    "LinkViewOnly",
    "LinkWithdrawn",
    "OneTimeLink",
    "OneTimeLinkService",
    "SealBroken",
    "SecretCipher",
]
