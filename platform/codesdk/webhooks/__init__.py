"""What goes out to people and programs that are not looking: signed deliveries, and tickets by which they answer."""

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
from codesdk.webhooks.sealing import Seal, SealBroken

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
    "Seal",
    "SealBroken",
]
