"""The fake of the `Sender` port: keeps what it is given, and answers as it is told."""

from __future__ import annotations

import threading
from collections.abc import Callable

from codesdk.webhooks.endpoint import EndpointWrong
from codesdk.webhooks.parcel import Parcel, Sent


class KeepingSender:
    """Sends nothing anywhere."""

    def __init__(self, answer: Callable[[Parcel], Sent] = lambda _: Sent(status=200)) -> None:
        """`answer`: how each parcel is received."""
        self.answer = answer
        self.parcels: list[Parcel] = []
        self._lock = threading.Lock()

    def check(self, target: str) -> str:
        """Anything that looks like a URL or an address."""
        if "://" not in target and "@" not in target:
            raise EndpointWrong("This is no target.")
        return target

    def send(self, parcel: Parcel) -> Sent:
        """Keep it."""
        with self._lock:
            self.parcels.append(parcel)
        return self.answer(parcel)
