"""Waits for the end of a call: first for a hint, then by following its session's log. No event is missed."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

from codesdk.domain.events import Event, EventType
from codesdk.domain.ids import ToolCallId
from codesdk.domain.subjects import Subject
from codesdk.errors import Fault
from codesdk.eventlog.hints import Hints
from codesdk.eventlog.log import CALL_END_TYPES, EventLog
from codesdk.eventlog.tail import Tail
from codesdk.toolcalls.pipeline import Pipeline
from codesdk.toolcalls.records.call_record import Denied, Finished, Outcome, Queued
from codesdk.toolcalls.retries import store as retry_store

QUICK_S = 0.1
"""Seconds in which a queued call may end before its log is followed, and before any progress is reported. A lost hint
delays the answer by as long. `DELTA_S`, because no output is logged sooner."""
POLL_S = 0.25
"""Seconds between reads of a call's row after its log could not be followed."""
MAX_RECENT = 1024
"""Ended calls remembered for callers who are about to wait for them."""

ReadOutcome = Callable[[], Outcome]
"""Reads a call's outcome from its row."""
_log = logging.getLogger(__name__)
T = TypeVar("T")

OnEvent = Callable[[Event], Awaitable[None]]


class _Update(NamedTuple):
    events: list[Event]
    stands: Outcome | None
    """The outcome, read if one of these events ends an attempt, which need not be the last. None: nothing ended, or it
    could not be read."""
    ended: bool = False
    is_last: bool = False
    """The log can't be followed any more; the call's row still shows its end."""


class ResultWaiter:
    """Waits for calls, for any number of callers."""

    def __init__(
        self, pipeline: Pipeline, log: EventLog, tail: Tail, hints: Hints, *, quick_s: float = QUICK_S
    ) -> None:
        self._pipeline = pipeline
        self._log = log
        self._tail = tail
        self._ends = CompletionNotifier(hints)
        self._quick_s = quick_s

    def listen(self) -> None:
        """Receive hints of ends from now on. Call it once, before the first wait; without it quick waits take longer."""
        self._ends.listen()

    async def wait(
        self,
        outcome: Outcome,
        subject: Subject,
        timeout_s: float,
        on_event: OnEvent | None = None,
        *,
        after_seq: int | None = None,
    ) -> Outcome:
        """The outcome when the call has ended, or as it stands after `timeout_s` seconds.

        `on_event` receives every event of this attempt (progress, output, decisions) after `after_seq`, unless it ends at
        once. None: from its request on.
        """
        if isinstance(outcome, Denied | Finished):
            return outcome
        if isinstance(outcome, Queued):
            quick_s = min(self._quick_s, timeout_s)
            timeout_s -= quick_s
            call = outcome.identity.tool_call_id
            end = await self._ends.wait(call, lambda: self._current_outcome(outcome, subject), quick_s)
            if isinstance(end, Denied | Finished):
                return end
        deadline = asyncio.get_running_loop().time() + timeout_s
        if after_seq is None:
            try:
                async with asyncio.timeout_at(deadline):
                    after_seq = await _read_with_retry(lambda: self._seq_before(outcome, subject))
            except TimeoutError:
                return await asyncio.to_thread(self._current_outcome, outcome, subject)
        return await self._follow(outcome, subject, after_seq, deadline, on_event)

    async def _follow(
        self, outcome: Outcome, subject: Subject, after_seq: int, deadline: float, on_event: OnEvent | None
    ) -> Outcome:
        call = outcome.identity.tool_call_id
        loop = asyncio.get_running_loop()
        updates: asyncio.Queue[_Update] = asyncio.Queue()

        def deliver(events: list[Event]) -> None:
            ours = [event for event in events if event.payload.get("tool_call_id") == call]
            if ours:
                ended = any(event.type in CALL_END_TYPES for event in ours)
                stands = self._try_read(outcome, subject) if ended else None
                loop.call_soon_threadsafe(updates.put_nowait, _Update(ours, stands, ended))

        def interrupted(_fault: Fault) -> None:
            loop.call_soon_threadsafe(updates.put_nowait, _Update([], None, is_last=True))

        subscription = self._tail.subscribe(subject.session_id, after_seq, deliver, interrupted)
        try:
            async with asyncio.timeout_at(deadline):
                while True:
                    news = await updates.get()
                    if on_event is not None:
                        for event in news.events:
                            await on_event(event)
                    stands = news.stands
                    if news.is_last or (news.ended and stands is None):
                        stands = await self._read_outcome(outcome, subject, final=news.is_last)
                    if isinstance(stands, Denied | Finished):
                        return stands  # else that attempt was lost, and the next one is on its way
        except TimeoutError:
            return await asyncio.to_thread(self._current_outcome, outcome, subject)
        finally:
            self._tail.unsubscribe(subscription)

    def _seq_before(self, outcome: Outcome, subject: Subject) -> int:
        """Where the events of this attempt begin. Read only now, since most calls end at once."""
        with self._log.database.read() as connection:
            requested = EventType.CALL_REQUESTED
            return max(0, retry_store.event_seq(connection, subject.session_id, outcome.identity, requested) - 1)

    def _try_read(self, outcome: Outcome, subject: Subject) -> Outcome | None:
        """The outcome, read on the tail's thread, which saves a thread switch. None: the caller must read it."""
        try:
            return self._current_outcome(outcome, subject)
        except Fault as fault:  # a fault here would end the tail's delivery
            _log.info("the end of a call is read again: %s", fault)
            return None

    async def _read_outcome(self, outcome: Outcome, subject: Subject, *, final: bool) -> Outcome:
        """The outcome, as soon as it can be read; with `final`, only once the call has ended."""
        while True:
            found = await _read_with_retry(lambda: self._current_outcome(outcome, subject))
            if not final or isinstance(found, Denied | Finished):
                return found
            await asyncio.sleep(POLL_S)

    def _current_outcome(self, outcome: Outcome, subject: Subject) -> Outcome:
        call = outcome.identity.tool_call_id
        return self._pipeline.find(subject.tenant_id, subject.session_id, call) or outcome


async def _read_with_retry(read: Callable[[], T]) -> T:
    """What `read` returns, as soon as the database answers: a call that waits through an outage gets its result."""
    while True:
        try:
            return await asyncio.to_thread(read)
        except Fault as fault:
            if not fault.retryable:
                raise
            _log.info("a call's end is read again: %s", fault)
        await asyncio.sleep(POLL_S)


class _Waiter:
    def __init__(self, read: ReadOutcome) -> None:
        self._read = read
        self._loop = asyncio.get_running_loop()
        self.end: asyncio.Future[Outcome | None] = self._loop.create_future()

    def read_end(self) -> None:
        """Read the end on this thread, which saves a thread switch."""
        found: Outcome | None = None
        try:
            found = self._read()
        except Fault as fault:  # the waiter reads it itself
            _log.info("the end of a call is read again: %s", fault)
        try:
            self._loop.call_soon_threadsafe(self._settle, found)
        except RuntimeError:
            _log.debug("no caller waits for a call any more: the event loop is closed")

    def _settle(self, found: Outcome | None) -> None:
        if not self.end.done():
            self.end.set_result(found)


class CompletionNotifier:
    """Wakes the callers that wait for a call when a hint says that it ended. A hint may be lost: see `wait`."""

    def __init__(self, hints: Hints) -> None:
        self._hints = hints
        self._guard = threading.Lock()
        self._waiters: dict[ToolCallId, list[_Waiter]] = {}
        self._recent: dict[ToolCallId, None] = {}

    def listen(self) -> None:
        """Receive hints from now on. A process that waits for no calls doesn't need them."""
        self._hints.listen_for_call_ends(self._on_end)

    async def wait(self, call: ToolCallId, read: ReadOutcome, within_s: float) -> Outcome | None:
        """What `read` returns once a hint says that the call ended, on the caller's event loop.

        None: no hint came in `within_s` seconds, or it could not be read. It may have ended all the same.
        """
        waiter = _Waiter(read)
        with self._guard:
            has_ended = call in self._recent
            if not has_ended:
                self._waiters.setdefault(call, []).append(waiter)
        try:
            if has_ended:
                await asyncio.to_thread(waiter.read_end)
            async with asyncio.timeout(within_s):
                return await waiter.end
        except TimeoutError:
            return None
        finally:
            with self._guard:
                remaining = [each for each in self._waiters.pop(call, []) if each is not waiter]
                if remaining:
                    self._waiters[call] = remaining

    def _on_end(self, call: ToolCallId) -> None:
        with self._guard:
            self._recent[call] = None
            while len(self._recent) > MAX_RECENT:
                del self._recent[next(iter(self._recent))]
            waiters = self._waiters.pop(call, [])
        for waiter in waiters:
            waiter.read_end()
