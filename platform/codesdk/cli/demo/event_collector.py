"""Collects a session's events over the HTTP stream, from the first event on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from codesdk.cli.api_client import ApiClient
from codesdk.cli.demo.steps import DemoFailed
from codesdk.cli.logs.history import History, fold
from codesdk.domain.events import Event, EventType
from codesdk.errors import Fault


class EventCollector:
    """Follows the stream on a thread until the session's sandbox is removed or `close` is called."""

    def __init__(self, daemon: ApiClient, session: str) -> None:
        self._daemon = daemon
        self._session = session
        self._events: list[Event] = []
        self._changed = threading.Condition()
        self._fault: Fault | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._read, name="codesdk-demo-witness", daemon=True)
        self._thread.start()

    @property
    def events(self) -> list[Event]:
        """Return all events so far."""
        with self._changed:
            return list(self._events)

    def history(self) -> History:
        """Fold the events so far."""
        return fold(self.events)

    def wait_for(self, matches: Callable[[Event], bool], timeout_s: float) -> Event:
        """Return the first matching event, waiting for it if necessary.

        Raises:
            DemoFailed: none came in time.
            Fault: the error that broke the stream.
        """
        until = time.monotonic() + timeout_s
        seen = 0
        with self._changed:
            while True:
                for event in self._events[seen:]:
                    if matches(event):
                        return event
                seen = len(self._events)
                if self._fault is not None:
                    raise self._fault
                if not self._changed.wait(max(0.0, until - time.monotonic())) and time.monotonic() >= until:
                    last = str(self._events[-1].type) if self._events else "nothing"
                    raise DemoFailed(f"An event did not come within {timeout_s:.0f} s; the last was {last}.")

    def close(self) -> None:
        """Stop at the next event."""
        self._closed = True

    def _read(self) -> None:
        try:
            for event in self._daemon.follow(self._session, ended=lambda: self._closed):
                with self._changed:
                    self._events.append(event)
                    self._changed.notify_all()
                if self._closed or event.type is EventType.SANDBOX_STOPPED:
                    return
        except Fault as fault:
            with self._changed:
                self._fault = fault
                self._changed.notify_all()
