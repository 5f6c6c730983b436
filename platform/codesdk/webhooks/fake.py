"""In-memory `Sender` for tests."""

from __future__ import annotations

import threading
from collections.abc import Callable

from codesdk.webhooks.endpoint import InvalidEndpoint
from codesdk.webhooks.outgoing_message import OutgoingMessage, SendResult


class FakeSender:
    """Records messages instead of sending them."""

    def __init__(self, answer: Callable[[OutgoingMessage], SendResult] = lambda _: SendResult(status=200)) -> None:
        """`answer`: the result for each message."""
        self.answer = answer
        self.messages_sent: list[OutgoingMessage] = []
        self._lock = threading.Lock()

    def check(self, target: str) -> str:
        """Accept anything that looks like a URL or a mail address."""
        if "://" not in target and "@" not in target:
            raise InvalidEndpoint("This is not a target.")
        return target

    def send(self, outgoing: OutgoingMessage) -> SendResult:
        """Record the message."""
        with self._lock:
            self.messages_sent.append(outgoing)
        return self.answer(outgoing)
