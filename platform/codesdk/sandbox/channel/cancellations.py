"""What a cancel means for a call's file operations: nothing more is asked for, and what only reads is not waited for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from codesdk.sandbox.channel.connection import Header, Key
from codesdk.sandbox.channel.files import SendRequest
from codesdk.sandbox.port.faults import CallCancelled

READ_OPERATIONS = frozenset(("read", "list", "stat", "marks", "manifest"))
"""Change nothing, so that nobody need know how they end."""
_CONTINUATIONS = frozenset(("upload.append", "upload.commit", "upload.abort"))
"""Belong to what was begun before."""
REMEMBERED = 1024
"""Calls that are kept in mind; each is forgotten when its end is recorded."""


class SendInterruptibleRequest(Protocol):
    """As `SendRequest`; `stop` is called while no answer comes, and what it raises ends the wait."""

    def __call__(
        self,
        header: Header,
        body: bytes = b"",
        *,
        timeout_s: float = 30.0,
        repeat: bool = False,
        stop: Callable[[], object] | None = None,
    ) -> tuple[Header, bytes]:
        """The answer's header and body."""
        ...


class CancelledCalls:
    """Of one sandbox. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: dict[Key, None] = {}

    def add(self, key: Key) -> None:
        """It was cancelled."""
        with self._lock:
            self._calls[key] = None
            while len(self._calls) > REMEMBERED:
                del self._calls[next(iter(self._calls))]

    def forget(self, key: Key) -> None:
        """It has ended."""
        with self._lock:
            self._calls.pop(key, None)

    def check(self, key: Key, *, was_sent: bool = False) -> None:
        """Go no further where it was cancelled.

        Raises:
            CallWithdrawn: it was.
        """
        if key in self._calls:
            raise CallCancelled(*key, was_sent=was_sent)

    def cancellable(self, key: Key, send: SendInterruptibleRequest) -> SendRequest:
        """Ask for that call."""

        def request(
            header: dict[str, Any], body: bytes = b"", *, timeout_s: float = 30.0, repeat: bool = False
        ) -> tuple[dict[str, Any], bytes]:
            operation = str(header.get("op"))
            if operation in _CONTINUATIONS:
                return send(header, body, timeout_s=timeout_s, repeat=repeat)
            self.check(key)
            named = {**header, "call": key[0], "attempt": key[1]}
            stop = partial(self.check, key, was_sent=True) if operation in READ_OPERATIONS else None
            answer, data = send(named, body, timeout_s=timeout_s, repeat=repeat, stop=stop)
            if answer.get("error") == "WITHDRAWN":
                raise CallCancelled(*key)
            return answer, data

        return request
