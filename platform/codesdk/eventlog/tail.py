"""Follows many sessions' logs with one thread, woken by hints and by a poll in case hints are lost."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TypeVar

from codesdk.domain.clock import Clock
from codesdk.domain.events import Event
from codesdk.domain.ids import SessionId
from codesdk.errors import Fault, InternalFault
from codesdk.eventlog.hints import Hints
from codesdk.eventlog.log import EventLog

T = TypeVar("T")
_log = logging.getLogger(__name__)

OnEvents = Callable[[list[Event]], None]
"""Receives the next events of a session, in order, each once. Must return soon: it runs on the tail's thread."""
OnFault = Callable[[Fault], None]
"""Receives the fault after which nothing more is delivered: the next event can't be read. Must return soon, too."""


class Subscription:
    """One reader's position in one session's log."""

    def __init__(self, session: SessionId, after: int, on_events: OnEvents, on_fault: OnFault | None) -> None:
        self.session = session
        self.after = after
        self.on_events = on_events
        self.on_fault = on_fault


class Tail:
    """Delivers committed events to subscriptions."""

    def __init__(self, log: EventLog, hints: Hints, clock: Clock, poll_s: float) -> None:
        """Create a tail. `poll_s`: seconds between polls of all followed sessions, each a single query."""
        self._log = log
        self._clock = clock
        self._poll_s = poll_s
        self._lock = threading.Lock()
        self._subscriptions: dict[SessionId, list[Subscription]] = {}
        self._hinted: set[SessionId] = set()
        self._wake = threading.Event()
        self._closing = False
        self._hints = hints
        self._thread: threading.Thread | None = None

    def subscribe(
        self, session: SessionId, after: int, on_events: OnEvents, on_fault: OnFault | None = None
    ) -> Subscription:
        """Deliver every event after `after`, starting with those already stored."""
        subscription = Subscription(session, after, on_events, on_fault)
        with self._lock:
            self._subscriptions.setdefault(session, []).append(subscription)
            self._hinted.add(session)
            self._start()
        self._wake.set()
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """Stop delivering. A delivery in progress may still finish."""
        with self._lock:
            remaining = self._subscriptions.get(subscription.session, [])
            if subscription in remaining:
                remaining.remove(subscription)
            if not remaining:
                self._subscriptions.pop(subscription.session, None)

    def close(self) -> None:
        """Stop the thread."""
        self._closing = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout=5.0)

    def _start(self) -> None:
        # Started by the first reader: a process without readers (the worker) needs no thread and no Redis subscription.
        if self._thread is None:
            self._hints.listen(self._on_hint)
            self._thread = threading.Thread(target=self._follow, name="codesdk-tail", daemon=True)
            self._thread.start()

    def _on_hint(self, session: SessionId) -> None:
        with self._lock:
            if session not in self._subscriptions:
                return
            self._hinted.add(session)
        self._wake.set()

    def _follow(self) -> None:
        next_poll = self._clock.monotonic()
        while not self._closing:
            self._wake.wait(max(0.0, next_poll - self._clock.monotonic()))
            self._wake.clear()
            with self._lock:
                due, self._hinted = set(self._hinted), set()
                followed = set(self._subscriptions)
            # Poll on schedule even if hints keep coming, so that a lost hint delays events by one interval at most.
            if self._clock.monotonic() >= next_poll:
                next_poll = self._clock.monotonic() + self._poll_s
                due.update(self._sessions_behind(followed))
            for session in due:
                self._deliver(session)

    def _sessions_behind(self, sessions: set[SessionId]) -> list[SessionId]:
        try:
            heads = self._log.heads(sorted(sessions)) if sessions else {}
        except Fault as fault:
            # The next poll checks all sessions again, so no event is skipped.
            _log.warning("following the log is interrupted: %s", fault)
            return []
        with self._lock:
            places = {session: list(self._subscriptions.get(session, [])) for session in heads}
        return [session for session, head in heads.items() if any(s.after < head for s in places[session])]

    def _deliver(self, session: SessionId) -> None:
        with self._lock:
            subscriptions = list(self._subscriptions.get(session, []))
        for subscription in subscriptions:
            try:
                self._catch_up(subscription)
            except Fault as fault:
                # A fault in one session must not delay the others' readers. Retryable faults are retried by the next
                # poll.
                _log.warning("following session %s is interrupted: %s", session, fault)
                if not fault.retryable:
                    self._give_up(subscription, fault)
            except Exception:  # noqa: BLE001 (a defect must not end the thread that all other readers live on)
                _log.exception("following session %s failed", session)
                self._give_up(subscription, InternalFault(f"Session {session} cannot be followed, by a defect."))

    def _give_up(self, subscription: Subscription, fault: Fault) -> None:
        self.unsubscribe(subscription)
        if subscription.on_fault is not None:
            self._notify(subscription, subscription.on_fault, fault)

    def _catch_up(self, subscription: Subscription) -> None:
        is_last = False
        while not is_last:
            events, is_last, fault = self._log.page(subscription.session, subscription.after)
            if events:
                subscription.after = events[-1].seq
                if not self._notify(subscription, subscription.on_events, events):
                    return
            if fault is not None:
                raise fault

    def _notify(self, subscription: Subscription, listener: Callable[[T], None], what: T) -> bool:
        try:
            listener(what)
        except Exception:  # noqa: BLE001 (a reader is any callable)
            # A failing reader (its event loop is closed, say) must not stop delivery to the others.
            _log.warning("a reader of session %s failed: it gets nothing more", subscription.session, exc_info=True)
            self.unsubscribe(subscription)
            return False
        return True
