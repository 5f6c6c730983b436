"""One message to one endpoint: what it says, how often it was tried, and when it is tried again."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from codesdk.domain.ids import DeliveryId, EndpointId, OneTimeLinkId, SessionId, TenantId
from codesdk.domain.model import FrozenModel
from codesdk.errors import ExitCode, Fault

WINDOW_S = 24 * 3600.0
"""Seconds from a message's making, or from its replay, in which it is tried."""
FIRST_RETRY_S = 5.0
RETRY_FACTOR = 4.0
MAX_RETRY_S = 6 * 3600.0
"""Seconds before the second try, how much longer each next pause is, and the longest: ten tries in a day."""
JITTER = 0.2
"""Share of a pause by which it is shorter or longer, so that what failed together does not come back together."""
KEPT_ATTEMPTS = 20


class DeliveryState(StrEnum):
    """Where it stands."""

    PENDING = "pending"
    DELIVERED = "delivered"
    """The receiver said 2xx; a mail server or a chat took it."""
    DEAD = "dead"
    """Given up; it can be replayed."""


class Failure(StrEnum):
    """Why an attempt was none."""

    NO_SUCH_NAME = "NO_SUCH_NAME"
    ADDRESS_REFUSED = "ADDRESS_REFUSED"
    """Its name leads to an address that is not public; nothing was connected to."""
    UNREACHABLE = "UNREACHABLE"
    TLS = "TLS"
    TIMEOUT = "TIMEOUT"
    REDIRECT = "REDIRECT"
    """Never followed: it would lead past the checks of the address."""
    STATUS = "STATUS"
    NO_ANSWER = "NO_ANSWER"
    """What came back is no answer of HTTP, or of a mail server."""
    UNSENDABLE = "UNSENDABLE"
    """It cannot be made: a secret does not open, a setting is missing."""


class Attempt(FrozenModel):
    """One try."""

    at: float
    """Seconds since the epoch."""
    duration_ms: float
    status: int | None = None
    """What was answered, where something was."""
    failure: Failure | None = None
    detail: str = ""
    """In words; nothing of the answer's content."""
    retry_after_s: float | None = None
    """What the receiver asked for."""


class Delivery(FrozenModel):
    """A message on its way to an endpoint."""

    id: DeliveryId
    """Also its `webhook-id`: the same in every try, by which a receiver knows what it has had."""
    endpoint_id: EndpointId
    tenant_id: TenantId
    type: str
    session_id: SessionId | None = None
    seq: int | None = None
    """Of the event that it tells."""
    ticket_id: OneTimeLinkId | None = None
    state: DeliveryState
    created_at: float
    due_at: float
    until: float
    """Not tried again after that."""
    tries: int = 0
    """Since it was made, or replayed."""
    attempts: tuple[Attempt, ...] = ()
    """The last of them, oldest first."""
    replays: int = 0
    """How often somebody asked that it be sent once more."""


class Message(FrozenModel):
    """What is told (Standard Webhooks: `type`, `timestamp`, `data`)."""

    type: str
    timestamp: str
    """When it happened: RFC 3339, UTC."""
    data: dict[str, Any]


class DeliveryUnknown(Fault):
    """No such delivery to this endpoint."""

    code = "DELIVERY_UNKNOWN"
    status = 404
    exit_code = ExitCode.FAILED


def next_due(delivery: Delivery, now: float, jitter: float, retry_after_s: float | None = None) -> float | None:
    """When it is tried again after a failure at `now`; None: it is given up. `jitter`: random, from 0 up to 1.

    What is of use only for a short time (a question that expires) is tried more often in it.
    """
    left = delivery.until - now
    if left <= 0:
        return None
    whole = delivery.until - delivery.created_at
    pause = min(FIRST_RETRY_S * RETRY_FACTOR**delivery.tries, MAX_RETRY_S, max(FIRST_RETRY_S, whole / 4))
    pause *= 1 - JITTER + 2 * JITTER * jitter
    if retry_after_s is not None:
        pause = max(pause, min(retry_after_s, 3600.0))
    # The last try is at the very end, and not before something else could have changed.
    return now + min(pause, left) if left > 1 else None
