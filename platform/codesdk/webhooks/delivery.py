"""A delivery: one message to one endpoint, its attempts and its retry schedule."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from codesdk.domain.ids import DeliveryId, EndpointId, OneTimeLinkId, SessionId, TenantId
from codesdk.domain.model import FrozenModel
from codesdk.errors import NotFound

WINDOW_S = 24 * 3600.0
"""Seconds, from creation or replay, during which a delivery is retried."""
FIRST_RETRY_S = 5.0
RETRY_FACTOR = 4.0
MAX_RETRY_S = 6 * 3600.0
"""Seconds before the first retry, the factor for each further one, and the longest pause: ten attempts in a day."""
JITTER = 0.2
"""Fraction by which a pause varies, so that deliveries that failed together do not retry together."""
KEPT_ATTEMPTS = 20


class DeliveryState(StrEnum):
    """State of a delivery."""

    PENDING = "pending"
    DELIVERED = "delivered"
    """The receiver answered 2xx, or the mail server or chat accepted it."""
    DEAD = "dead"
    """Retries are exhausted; it can be replayed."""


class Failure(StrEnum):
    """Why an attempt failed."""

    NO_SUCH_NAME = "NO_SUCH_NAME"
    ADDRESS_REFUSED = "ADDRESS_REFUSED"
    """The name resolves to a non-public address; no connection was made."""
    UNREACHABLE = "UNREACHABLE"
    TLS = "TLS"
    TIMEOUT = "TIMEOUT"
    REDIRECT = "REDIRECT"
    """Redirects are never followed: they would bypass the address check."""
    STATUS = "STATUS"
    NO_ANSWER = "NO_ANSWER"
    """The response is not valid HTTP or SMTP."""
    UNSENDABLE = "UNSENDABLE"
    """The message cannot be built: a secret cannot be unsealed, or a setting is missing."""


class Attempt(FrozenModel):
    """One attempt to deliver."""

    at: float
    """Seconds since the epoch."""
    duration_ms: float
    status: int | None = None
    """Status of the response, if there was one."""
    failure: Failure | None = None
    detail: str = ""
    """A short explanation; never the response body."""
    retry_after_s: float | None = None
    """The receiver's Retry-After."""


class Delivery(FrozenModel):
    """One message to one endpoint."""

    id: DeliveryId
    """Also the `webhook-id`: the same in every attempt, so that receivers can deduplicate."""
    endpoint_id: EndpointId
    tenant_id: TenantId
    type: str
    session_id: SessionId | None = None
    seq: int | None = None
    """Sequence number of the event."""
    ticket_id: OneTimeLinkId | None = None
    state: DeliveryState
    created_at: float
    due_at: float
    until: float
    """No attempt after this time."""
    tries: int = 0
    """Attempts since creation or the last replay."""
    attempts: tuple[Attempt, ...] = ()
    """The last attempts, oldest first."""
    replays: int = 0
    """Number of replays."""


class Message(FrozenModel):
    """The payload (Standard Webhooks: `type`, `timestamp`, `data`)."""

    type: str
    timestamp: str
    """Time of the event: RFC 3339, UTC."""
    data: dict[str, Any]


class DeliveryUnknown(NotFound):
    """No such delivery to this endpoint."""

    code = "DELIVERY_UNKNOWN"


def next_due(delivery: Delivery, now: float, jitter: float, retry_after_s: float | None = None) -> float | None:
    """Time of the next attempt after a failure at `now`, or None to give up. `jitter`: random, from 0 up to 1.

    A short-lived message, such as an approval that expires, is retried more often.
    """
    left = delivery.until - now
    if left <= 0:
        return None
    whole = delivery.until - delivery.created_at
    pause = min(FIRST_RETRY_S * RETRY_FACTOR**delivery.tries, MAX_RETRY_S, max(FIRST_RETRY_S, whole / 4))
    pause *= 1 - JITTER + 2 * JITTER * jitter
    if retry_after_s is not None:
        pause = max(pause, min(retry_after_s, 3600.0))
    # The last attempt comes at the very end; within its last second nothing would have changed.
    return now + min(pause, left) if left > 1 else None
