"""The fake of the `Sender` port: keeps what it is given, and answers as it is told."""

from __future__ import annotations

import threading
from collections.abc import Callable

from codesdk.webhooks.endpoint import InvalidEndpoint
from codesdk.webhooks.outgoing_message import OutgoingMessage, SendResult


class FakeSender:
    """Sends nothing anywhere."""

    def __init__(self, answer: Callable[[OutgoingMessage], SendResult] = lambda _: SendResult(status=200)) -> None:
        """`answer`: how each parcel is received."""
        self.answer = answer
        self.messages_sent: list[OutgoingMessage] = []
        self._lock = threading.Lock()

    def check(self, target: str) -> str:
        """Anything that looks like a URL or an address."""
        if "://" not in target and "@" not in target:
            raise InvalidEndpoint("This is no target.")
        return target

    def send(self, outgoing: OutgoingMessage) -> SendResult:
        """Keep it."""
        with self._lock:
            self.messages_sent.append(outgoing)
        return self.answer(outgoing)
