"""One caller's view of a call on its way: where it stands, since when, and what is worth telling."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from codesdk.domain.clock import Clock
from codesdk.domain.events import Event, EventType
from codesdk.toolcalls.records.call_record import Outcome, Waiting

_MAX_LINE_CHARS = 200
"""Characters of a line of output that a progress message shows."""


class CallPhase(StrEnum):
    """What the caller is waiting for; the value is what a progress message says."""

    DECISION = "waiting for a person to approve it"
    WORKER = "waiting for its turn"
    RESULT = "running"


_PREVIEW_FAILED = "it could not be tried in a copy of the workspace; waiting for a person to approve it"
_PREVIEW_MESSAGES: dict[str, str] = {
    EventType.APPROVAL_PREVIEW_STARTED: "being tried in a copy of the workspace, before a person is asked",
    EventType.APPROVAL_PREVIEWED: "tried in a copy of the workspace; waiting for a person to approve it",
}


class CallProgress:
    """Follows a call by its events. Used on one event loop."""

    def __init__(self, outcome: Outcome, place: int, clock: Clock) -> None:
        """`place`: the log's `seq` from which on events matter."""
        self._clock = clock
        self._started_at = clock.monotonic()
        self._last_output = ""
        self._preview = ""
        self._reason = f" ({_waiting_text(outcome)})" if isinstance(outcome, Waiting) else ""
        self.asked = isinstance(outcome, Waiting)
        """A person stands in its way, or stood there."""
        self.timed_out = False
        """It did not end in its time, and was cancelled."""
        self.place = place
        self.phase = CallPhase.DECISION if isinstance(outcome, Waiting) else CallPhase.WORKER
        self.since = self._started_at
        self.changed = asyncio.Event()

    async def see(self, event: Event) -> None:
        """Take in the next event of this call; never blocks, so that a slow client delays no result."""
        self.place = event.seq
        if event.type is EventType.CALL_STARTED:
            self.enter(CallPhase.RESULT)
        elif told := _PREVIEW_MESSAGES.get(str(event.type)):
            self._preview = _PREVIEW_FAILED if event.payload.get("failed") else told
        elif event.type is EventType.APPROVAL_REQUESTED and "reason" in event.payload:
            self._reason = f" ({_request_text(event.payload)})"
        elif event.type is EventType.APPROVAL_DECIDED:
            self.enter(CallPhase.WORKER)
        elif event.type is EventType.OUTPUT_DELTA:
            self.enter(CallPhase.RESULT)  # who joined it later has not seen it start
            self._last_output = _last_line(str(event.payload.get("delta", ""))) or self._last_output
        self.changed.set()

    def enter(self, phase: CallPhase) -> None:
        """Stand there from now on."""
        if phase is not self.phase:
            self.phase = phase
            self.since = self._clock.monotonic()
            self.changed.set()

    def elapsed(self) -> float:
        """Seconds since the caller began to wait."""
        return self._clock.monotonic() - self._started_at

    def message(self) -> str:
        """One line for a person who watches."""
        match self.phase:
            case CallPhase.DECISION:
                return (self._preview or self.phase.value) + self._reason
            case CallPhase.RESULT if self._last_output:
                return f"{self.phase.value}: {self._last_output}"
            case _:
                return self.phase.value


def _waiting_text(outcome: Waiting) -> str:
    until = datetime.fromtimestamp(outcome.expires_at, UTC)
    takes = f" It takes {outcome.who}." if outcome.who else ""
    return f"{outcome.approval_id}: {outcome.reason}{takes} Open until {until:%H:%M:%S} UTC"


def _request_text(asked: dict[str, Any]) -> str:
    """The same, once people are asked: until then the reason was what a worker had to see first."""
    until = datetime.fromtimestamp(float(asked.get("expires_at", 0.0)), UTC)
    return f"{asked.get('approval_id')}: {asked['reason']} Open until {until:%H:%M:%S} UTC"


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip()[:_MAX_LINE_CHARS] if lines else ""
