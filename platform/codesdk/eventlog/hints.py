"""Hints that a session's log has grown. The facts are in the rows, so a lost hint costs only latency."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable
from typing import Protocol

from redis import Redis
from redis.exceptions import RedisError

from codesdk.domain.circuit_breaker import CircuitBreaker
from codesdk.domain.ids import IdKind, SessionId, ToolCallId, is_id

CHANNEL = "codesdk:log"
_log = logging.getLogger(__name__)

OnHint = Callable[[SessionId], None]
OnCallEnd = Callable[[ToolCallId], None]


class Hints(Protocol):
    """Broadcasts that a session's log has grown to every process that listens."""

    def publish(self, session: SessionId) -> None:
        """Notify the listeners. Must return soon, and may lose the hint."""
        ...

    def publish_call_end(self, session: SessionId, call: ToolCallId) -> None:
        """Like `publish`, for events that end this call."""
        ...

    def listen(self, on_hint: OnHint) -> None:
        """Call `on_hint` for each hint from now on, on a thread of the implementation."""
        ...

    def listen_for_call_ends(self, on_end: OnCallEnd) -> None:
        """Call `on_end` for each call that ends, on the same thread."""
        ...

    def close(self) -> None:
        """Stop listening."""
        ...


class LocalHints:
    """Hints within one process: the fake, and the implementation for embedded mode."""

    def __init__(self) -> None:
        self._listeners: list[OnHint] = []
        self._call_end_listeners: list[OnCallEnd] = []

    def publish(self, session: SessionId) -> None:
        """Call each listener."""
        for listener in self._listeners:
            listener(session)

    def publish_call_end(self, session: SessionId, call: ToolCallId) -> None:
        """Call the listeners for call ends first, then those for the session."""
        for listener in self._call_end_listeners:
            listener(call)
        self.publish(session)

    def listen(self, on_hint: OnHint) -> None:
        """Add a listener."""
        self._listeners.append(on_hint)

    def listen_for_call_ends(self, on_end: OnCallEnd) -> None:
        """Add a listener."""
        self._call_end_listeners.append(on_end)

    def close(self) -> None:
        """Remove the listeners."""
        self._listeners.clear()
        self._call_end_listeners.clear()


class RedisHints:
    """Hints over Redis pub/sub, with direct delivery inside this process."""

    RETRY_S = 1.0
    """Seconds before a lost subscription or a failed publication is retried. Polling bridges the gap."""

    def __init__(self, redis_url: str) -> None:
        # Short timeouts, because publishing must never block a commit. None for the subscriber: redis-py's default of 5
        # s would end a quiet subscription.
        self._publisher = Redis.from_url(redis_url, socket_timeout=1.0, socket_connect_timeout=1.0)
        self._subscriber = Redis.from_url(redis_url, socket_timeout=None, socket_connect_timeout=2.0)
        self._breaker = CircuitBreaker(self.RETRY_S)
        self._local = LocalHints()
        self._origin = secrets.token_hex(8)
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def publish(self, session: SessionId) -> None:
        """Notify this process at once, then the others."""
        self._local.publish(session)
        self._publish(f"{self._origin} {session}")

    def publish_call_end(self, session: SessionId, call: ToolCallId) -> None:
        """Notify this process at once, then the others."""
        self._local.publish_call_end(session, call)
        self._publish(f"{self._origin} {session} {call}")

    def _publish(self, message: str) -> None:
        # Without the breaker, a hanging Redis would delay each hint by a second, including those to this process.
        self._breaker.attempt(lambda: self._publisher.publish(CHANNEL, message))

    def listen(self, on_hint: OnHint) -> None:
        """Add a listener. The first one starts the subscription."""
        self._local.listen(on_hint)
        self._start()

    def listen_for_call_ends(self, on_end: OnCallEnd) -> None:
        """Add a listener. The first one starts the subscription."""
        self._local.listen_for_call_ends(on_end)
        self._start()

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._receive, name="codesdk-hints", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """End the subscription and its thread."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join(timeout=3.0)
        self._subscriber.close()
        self._publisher.close()
        self._local.close()

    def _receive(self) -> None:
        while not self._closing.is_set():
            try:
                with self._subscriber.pubsub(ignore_subscribe_messages=True) as subscription:  # type: ignore[no-untyped-call]
                    subscription.subscribe(CHANNEL)
                    while not self._closing.is_set():
                        message = subscription.get_message(timeout=1.0)
                        if message is not None:
                            self._deliver(message["data"])
            except (RedisError, OSError) as error:
                _log.warning("hints are interrupted (%s); readers poll until Redis is back", error)
                self._closing.wait(self.RETRY_S)

    def _deliver(self, data: bytes) -> None:
        # Anyone who can reach Redis can publish. Only well-formed ids pass, and all that they cause is a read.
        origin, _, said = data.decode("ascii", "replace").partition(" ")
        session, _, call = said.partition(" ")
        if origin == self._origin or not is_id(session, IdKind.SESSION):
            return  # delivered when we published them
        if not call:
            self._local.publish(SessionId(session))
        elif is_id(call, IdKind.CALL):
            self._local.publish_call_end(SessionId(session), ToolCallId(call))
