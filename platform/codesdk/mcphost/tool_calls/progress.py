"""A call in progress: its phase as one caller sees it, and how many callers wait for it."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

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
"""Seconds from a cancel to the withdrawal; both must complete within two. A client that drops its connection and sends the
same call again (Qwen Code on its own timeout) returns within milliseconds, and must find the call still there."""

Withdraw = Callable[[ToolCallId, Subject], Awaitable[None]]


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
    """Counts the callers waiting for each call; withdraws a call that its last caller cancelled. Used on one event loop."""

    def __init__(self, withdraw: Withdraw) -> None:
        self._withdraw = withdraw
        self._waiting: Counter[ToolCallId] = Counter()
        self._withdrawals: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()

    def join(self, call: ToolCallId) -> None:
        """Count one more caller."""
        self._waiting[call] += 1

    def leave(self, call: ToolCallId) -> None:
        """Count one caller less: it was answered, or it cancelled."""
        self._waiting[call] -= 1
        if not self._waiting[call]:
            del self._waiting[call]

    def abandon(self, call: ToolCallId, subject: Subject) -> None:
        """A caller cancelled, before its `leave`. Withdraws the call after a grace period unless another caller waits."""
        task = asyncio.create_task(self._withdraw_after_grace(call, subject))
        self._withdrawals.add(task)
        task.add_done_callback(self._withdrawals.discard)

    def stop(self) -> None:
        """End the grace period of all cancelled calls: the process stops."""
        self._stopping.set()

    async def settle(self) -> None:
        """Wait until all withdrawals are done."""
        while self._withdrawals:
            await asyncio.wait(self._withdrawals)

    async def _withdraw_after_grace(self, call: ToolCallId, subject: Subject) -> None:
        try:
            async with asyncio.timeout(GRACE_S):
                await self._stopping.wait()
        except TimeoutError:
            pass
        if not self._waiting[call]:
            await self._withdraw(call, subject)


def _waiting_text(outcome: Waiting) -> str:
    until = datetime.fromtimestamp(outcome.expires_at, UTC)
    takes = f" It takes {outcome.who}." if outcome.who else ""
    return f"{outcome.approval_id}: {outcome.reason}{takes} Open until {until:%H:%M:%S} UTC"


def _request_text(asked: dict[str, Any]) -> str:
    """The text once approvers were asked; before that, the reason was what a worker had to inspect first."""
    until = datetime.fromtimestamp(float(asked.get("expires_at", 0.0)), UTC)
    return f"{asked.get('approval_id')}: {asked['reason']} Open until {until:%H:%M:%S} UTC"
