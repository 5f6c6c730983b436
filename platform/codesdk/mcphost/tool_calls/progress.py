"""A call in progress: its phase as one caller sees it, and how many callers wait for it."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from typing import Any, Protocol

from codesdk.domain.clock import Clock
from codesdk.domain.events import Event, EventType
from codesdk.domain.ids import ToolCallId
from codesdk.domain.subjects import Subject
from codesdk.toolcalls.records.call_record import Queued, Waiting

_MAX_LINE_CHARS = 200
"""Characters of an output line shown in a progress message."""
_MAX_LINES = 20
"""Output lines shown in a progress message: the newest."""
GRACE_S = 0.5
"""Seconds from a cancel or a lost client to the withdrawal; a cancel must complete within two. A client that drops its
connection and sends the same call again (Qwen Code on its own timeout) returns within milliseconds, and must find the call
still there."""

Withdraw = Callable[[ToolCallId, Subject], Awaitable[bool]]
"""Ends a call that has not begun; False: it has begun."""
Cancel = Callable[[ToolCallId, Subject], Awaitable[None]]


class Abandon(Protocol):
    """Abandons one caller's call."""

    def __call__(self, *, gone: bool) -> None:
        """See `Waiters.abandon`."""
        ...


class CallPhase(StrEnum):
    """What the caller is waiting for; the value is the text of the progress message."""

    DECISION = "waiting for a person to approve it"
    WORKER = "waiting for its turn"
    RESULT = "running"


_PREVIEW_FAILED = "it could not be tried in a copy of the workspace; waiting for a person to approve it"
_PREVIEW_MESSAGES: dict[str, str] = {
    EventType.APPROVAL_PREVIEW_STARTED: "being tried in a copy of the workspace, before a person is asked",
    EventType.APPROVAL_PREVIEWED: "tried in a copy of the workspace; waiting for a person to approve it",
}


class CallProgress:
    """One caller's view of a call, updated by the call's events. Used on one event loop."""

    def __init__(self, outcome: Waiting | Queued, clock: Clock) -> None:
        self._clock = clock
        self._started_at = clock.monotonic()
        self._new_output = _NewOutput()
        self._last_line = ""
        self._preview = ""
        self._reason = f" ({_waiting_text(outcome)})" if isinstance(outcome, Waiting) else ""
        self.asked = isinstance(outcome, Waiting)
        """Whether the call waits, or has waited, for an approval."""
        self.timed_out = False
        """Whether it was cancelled because it exceeded its time limit."""
        self.after_seq: int | None = None
        """Of the last event seen."""
        self.phase = CallPhase.DECISION if isinstance(outcome, Waiting) else CallPhase.WORKER
        self.since = self._started_at
        self.changed = asyncio.Event()

    async def see(self, event: Event) -> None:
        """Apply the call's next event. Never blocks, so a slow client delays no result."""
        self.after_seq = event.seq
        if event.type is EventType.CALL_STARTED:
            self.enter(CallPhase.RESULT)
        elif told := _PREVIEW_MESSAGES.get(str(event.type)):
            self._preview = _PREVIEW_FAILED if event.payload.get("failed") else told
        elif event.type is EventType.APPROVAL_REQUESTED and "reason" in event.payload:
            self._reason = f" ({_request_text(event.payload)})"
        elif event.type is EventType.APPROVAL_DECIDED:
            self.enter(CallPhase.WORKER)
        elif event.type is EventType.OUTPUT_DELTA:
            self.enter(CallPhase.RESULT)  # a caller that joined later hasn't seen the start event
            self._new_output.add(str(event.payload.get("delta", "")))
        self.changed.set()

    def enter(self, phase: CallPhase) -> None:
        """Enter a phase, if the call isn't in it already."""
        if phase is not self.phase:
            self.phase = phase
            self.since = self._clock.monotonic()
            self.changed.set()

    def elapsed(self) -> float:
        """Seconds since the caller began to wait."""
        return self._clock.monotonic() - self._started_at

    def take_message(self) -> str:
        """The next progress message: the phase, and the output since the message before, which is shown once."""
        if self.phase is CallPhase.DECISION:
            return (self._preview or self.phase.value) + self._reason
        if lines := self._new_output.take():
            self._last_line = lines[-1]
            return f"{self.phase.value}: " + "\n".join(lines)
        if self._last_line:
            return f"{self.phase.value}; last output: {self._last_line}"
        return self.phase.value


class _NewOutput:
    """The newest lines of output that no message has shown. Bounded, however slowly the client takes its messages."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=_MAX_LINES)
        self._left_out = 0

    def add(self, text: str) -> None:
        for line in filter(None, map(str.strip, text.splitlines())):
            self._left_out += len(self._lines) == _MAX_LINES
            self._lines.append(line[:_MAX_LINE_CHARS])

    def take(self) -> list[str]:
        """The lines, after a note of how many were left out. Empty if nothing is new."""
        note = [f"[… {self._left_out} lines left out …]"] if self._left_out else []
        lines = [*note, *self._lines]
        self._lines.clear()
        self._left_out = 0
        return lines


class Waiters:
    """Counts the callers waiting for each call; ends a call that its last caller abandoned. Used on one event loop.

    A client that left may come back: its call is withdrawn if it has not begun, and otherwise runs on for a grace, in
    which the same call joins it.
    """

    def __init__(self, withdraw: Withdraw, cancel: Cancel, grace_s: float) -> None:
        """`withdraw`: ends a call that has not begun. `grace_s`: seconds that a running call has once its client left."""
        self._withdraw = withdraw
        self._cancel = cancel
        self._grace_s = grace_s
        self._waiting: Counter[ToolCallId] = Counter()
        self._ends: dict[ToolCallId, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()

    def join(self, call: ToolCallId) -> None:
        """Count one more caller."""
        self._waiting[call] += 1
        self._ends.pop(call, None)

    def leave(self, call: ToolCallId) -> None:
        """Count one caller less: it was answered, it cancelled, or it left."""
        self._waiting[call] -= 1
        if not self._waiting[call]:
            del self._waiting[call]

    def abandon(self, call: ToolCallId, subject: Subject, *, gone: bool) -> None:
        """A caller cancelled or, with `gone`, left without an answer, after its `leave`.

        Ends the call later, unless another caller waits or comes meanwhile.
        """
        if self._waiting[call]:
            return
        task = asyncio.create_task(self._end_later(call, subject, gone=gone))
        self._ends[call] = task
        self._tasks.add(task)
        task.add_done_callback(partial(self._ended, call))

    def stop(self) -> None:
        """End the grace of all abandoned calls: the process stops."""
        self._stopping.set()

    async def settle(self) -> None:
        """Wait until all abandoned calls have been ended."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _ended(self, call: ToolCallId, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if self._ends.get(call) is task:
            del self._ends[call]

    async def _end_later(self, call: ToolCallId, subject: Subject, *, gone: bool) -> None:
        if not await self._is_abandoned_after(call, GRACE_S):
            return
        if gone:
            if await self._withdraw(call, subject):
                return
            if not await self._is_abandoned_after(call, self._grace_s - GRACE_S):
                return
        await self._cancel(call, subject)

    async def _is_abandoned_after(self, call: ToolCallId, seconds: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds)):
                await self._stopping.wait()
        return self._ends.get(call) is asyncio.current_task()


class Attendance:
    """One caller's part in the count of a call's waiters, as its client leaves and comes back."""

    def __init__(self, waiters: Waiters, call: ToolCallId, abandon: Abandon) -> None:
        """Count the caller. `abandon`: called when its client leaves."""
        self._waiters = waiters
        self._call = call
        self._abandon = abandon
        self._is_counted = True
        waiters.join(call)

    def change(self, connected: bool) -> None:
        """The client left, or came back."""
        if connected and not self._is_counted:
            self._is_counted = True
            self._waiters.join(self._call)
        elif not connected and self._is_counted:
            self.end()
            self._abandon(gone=True)

    def end(self) -> None:
        """The caller waits no more."""
        if self._is_counted:
            self._is_counted = False
            self._waiters.leave(self._call)


def _waiting_text(outcome: Waiting) -> str:
    until = datetime.fromtimestamp(outcome.expires_at, UTC)
    takes = f" It takes {outcome.who}." if outcome.who else ""
    return f"{outcome.approval_id}: {outcome.reason}{takes} Open until {until:%H:%M:%S} UTC"


def _request_text(asked: dict[str, Any]) -> str:
    """The text once approvers were asked; before that, the reason was what a worker had to inspect first."""
    until = datetime.fromtimestamp(float(asked.get("expires_at", 0.0)), UTC)
    return f"{asked.get('approval_id')}: {asked['reason']} Open until {until:%H:%M:%S} UTC"
