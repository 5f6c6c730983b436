"""Waits for the end of a call by following its session's log: no polling, and no event is missed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from codesdk.domain.events import Event, EventType
from codesdk.domain.subjects import Subject
from codesdk.eventlog.log import Log
from codesdk.eventlog.tail import Tail
from codesdk.toolcalls.pipeline import Pipeline
from codesdk.toolcalls.stored import Denied, Finished, Outcome

_ENDS = (EventType.CALL_COMPLETED, EventType.CALL_DENIED)

OnEvent = Callable[[Event], Awaitable[None]]


class Results:
    """Hands each caller the end of its call."""

    def __init__(self, pipeline: Pipeline, log: Log, tail: Tail) -> None:
        self._pipeline = pipeline
        self._log = log
        self._tail = tail

    def place(self, subject: Subject) -> int:
        """Where the session's log ends now; take it before submitting, so that nothing after it is missed."""
        return self._log.head(subject.session_id)

    async def wait(
        self, outcome: Outcome, subject: Subject, place: int, timeout_s: float, on_event: OnEvent | None = None
    ) -> Outcome:
        """The outcome when the call has ended, or as it stands after `timeout_s` seconds.

        `on_event` sees every event of this call on the way (progress, output, decisions).
        """
        if isinstance(outcome, Denied | Finished):
            return outcome
        call = outcome.identity.tool_call_id
        loop = asyncio.get_running_loop()
        arrived: asyncio.Queue[tuple[list[Event], Outcome | None]] = asyncio.Queue()

        def pass_on(events: list[Event]) -> None:
            ours = [event for event in events if event.payload.get("tool_call_id") == call]
            if ours:
                # The end is read here, on the tail's thread: one hop between threads less for every call.
                end = self._now(outcome, subject) if any(event.type in _ENDS for event in ours) else None
                loop.call_soon_threadsafe(arrived.put_nowait, (ours, end))

        subscription = self._tail.subscribe(subject.session_id, place, pass_on)
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    events, end = await arrived.get()
                    if on_event is not None:
                        for event in events:
                            await on_event(event)
                    if end is not None:
                        return end
        except TimeoutError:
            return await asyncio.to_thread(self._now, outcome, subject)
        finally:
            self._tail.unsubscribe(subscription)

    def _now(self, outcome: Outcome, subject: Subject) -> Outcome:
        call = outcome.identity.tool_call_id
        return self._pipeline.find(subject.tenant_id, subject.session_id, call) or outcome
