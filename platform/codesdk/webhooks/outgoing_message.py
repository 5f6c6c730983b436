"""What a sender gets, and the port that senders are."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from codesdk.domain.model import FrozenModel
from codesdk.webhooks.delivery import Failure, Message


class AnswerLink(FrozenModel):
    """How an approval may be answered from a message."""

    approval_id: str
    digest: str
    """A vote echoes it."""
    expires_at: float
    url: str
    """Where a program posts its vote."""
    token: str
    """Its credential, for one vote: `Authorization: Bearer …`."""
    page: str
    """Where a person sees it and decides. Whoever has this link is the endpoint's principal for this one vote."""


class DigestItem(FrozenModel):
    """One message among those of a digest."""

    message: Message
    answer: AnswerLink | None


@dataclass(frozen=True)
class OutgoingMessage:
    """One message, ready to go; or a digest of several, for people."""

    id: str
    target: str
    """Opened: a URL or a mail address."""
    keys: tuple[str, ...]
    """Signing secrets, newest first."""
    message: Message
    answer: AnswerLink | None
    at: datetime
    """When it is sent; a signature holds for some minutes around it."""
    more: tuple[DigestItem, ...] = ()
    """What waited together with it and goes in the same message; only chats and mail get such."""

    @property
    def items(self) -> tuple[DigestItem, ...]:
        """All that it tells."""
        return (DigestItem(message=self.message, answer=self.answer), *self.more)


@dataclass(frozen=True)
class SendResult:
    """How it went; an expected outcome, never an exception."""

    status: int | None = None
    failure: Failure | None = None
    detail: str = ""
    retry_after_s: float | None = None
    gone: bool = False
    """The receiver wants nothing more, ever."""


class Sender(Protocol):
    """Sends parcels of one kind. Every one passes tests/contract/test_senders.py."""

    def check(self, target: str) -> str:
        """The target as it may be shown in lists.

        Raises:
            EndpointWrong: nothing can be sent there.
        """
        ...

    def send(self, outgoing: OutgoingMessage) -> SendResult:
        """Send it and wait for the answer, for a bounded time."""
        ...
