"""Outgoing messages, and the `Sender` port."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from codesdk.domain.model import FrozenModel
from codesdk.webhooks.delivery import Failure, Message


class AnswerLink(FrozenModel):
    """How to answer an approval from a message."""

    approval_id: str
    digest: str
    """To be sent back with the vote."""
    expires_at: float
    url: str
    """Where a program posts the vote."""
    token: str
    """Bearer token for one vote: `Authorization: Bearer …`."""
    page: str
    """The approval page. Anyone with this link acts as the endpoint's principal for this one vote."""


class DigestItem(FrozenModel):
    """One message of a digest."""

    message: Message
    answer: AnswerLink | None


@dataclass(frozen=True)
class OutgoingMessage:
    """One message ready to send, or a digest of several, for people."""

    id: str
    target: str
    """Unsealed: a URL or a mail address."""
    keys: tuple[str, ...]
    """Signing secrets, newest first."""
    message: Message
    answer: AnswerLink | None
    at: datetime
    """Time of sending; receivers accept the signature for some minutes around it."""
    more: tuple[DigestItem, ...] = ()
    """Further messages of the digest; only for chat and mail."""

    @property
    def items(self) -> tuple[DigestItem, ...]:
        """All messages in it."""
        return (DigestItem(message=self.message, answer=self.answer), *self.more)


@dataclass(frozen=True)
class SendResult:
    """Outcome of an attempt; failures are values, not exceptions."""

    status: int | None = None
    failure: Failure | None = None
    detail: str = ""
    retry_after_s: float | None = None
    gone: bool = False
    """The receiver answered 410 Gone: disable the endpoint."""


class Sender(Protocol):
    """Sends messages of one kind. Every implementation passes tests/contract/test_senders.py."""

    def check(self, target: str) -> str:
        """Validate a target; returns it as lists may show it.

        Raises:
            InvalidEndpoint: nothing can be sent there.
        """
        ...

    def send(self, outgoing: OutgoingMessage) -> SendResult:
        """Send the message and wait for the response, for a bounded time."""
        ...
