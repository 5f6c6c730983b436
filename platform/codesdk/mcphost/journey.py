"""One caller's view of a call on its way: where it stands, since when, and what is worth telling."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from codesdk.domain.clock import Clock
from codesdk.domain.events import Event, EventType
from codesdk.toolcalls.stored import Outcome, Waiting

_NOTE = 200
"""Characters of a line of output that a progress message shows."""


class Phase(StrEnum):
    """What the caller is waiting for; the value is what a progress message says."""

    DECISION = "waiting for a person to approve it"
    WORKER = "waiting for its turn"
    RESULT = "running"


_UNTRIED = "it could not be tried in a copy of the workspace; waiting for a person to approve it"
_TOLD: dict[str, str] = {
    EventType.APPROVAL_PREVIEW_STARTED: "being tried in a copy of the workspace, before a person is asked",
    EventType.APPROVAL_PREVIEWED: "tried in a copy of the workspace; waiting for a person to approve it",
}


class Journey:
    """Follows a call by its events. Used on one event loop."""

    def __init__(self, outcome: Outcome, place: int, clock: Clock) -> None:
        """`place`: the log's `seq` from which on events matter."""
        self._clock = clock
        self._began = clock.monotonic()
        self._note = ""
        self._trial = ""
        self._reason = f" ({_told(outcome)})" if isinstance(outcome, Waiting) else ""
        self.asked = isinstance(outcome, Waiting)
        """A person stands in its way, or stood there."""
        self.given_up = False
        """It did not end in its time, and was cancelled."""
        self.place = place
        self.phase = Phase.DECISION if isinstance(outcome, Waiting) else Phase.WORKER
        self.since = self._began
        self.changed = asyncio.Event()

    async def see(self, event: Event) -> None:
        """Take in the next event of this call; never blocks, so that a slow client delays no result."""
        self.place = event.seq
        if event.type is EventType.CALL_STARTED:
            self.enter(Phase.RESULT)
        elif told := _TOLD.get(str(event.type)):
            self._trial = _UNTRIED if event.payload.get("failed") else told
        elif event.type is EventType.APPROVAL_REQUESTED and "reason" in event.payload:
            self._reason = f" ({_open(event.payload)})"
        elif event.type is EventType.APPROVAL_DECIDED:
            self.enter(Phase.WORKER)
        elif event.type is EventType.OUTPUT_DELTA:
            self.enter(Phase.RESULT)  # who joined it later has not seen it start
            self._note = _last_line(str(event.payload.get("delta", ""))) or self._note
        self.changed.set()

    def enter(self, phase: Phase) -> None:
        """Stand there from now on."""
        if phase is not self.phase:
            self.phase = phase
            self.since = self._clock.monotonic()
            self.changed.set()

    def elapsed(self) -> float:
        """Seconds since the caller began to wait."""
        return self._clock.monotonic() - self._began

    def message(self) -> str:
        """One line for a person who watches."""
        match self.phase:
            case Phase.DECISION:
                return (self._trial or self.phase.value) + self._reason
            case Phase.RESULT if self._note:
                return f"{self.phase.value}: {self._note}"
            case _:
                return self.phase.value


def _told(outcome: Waiting) -> str:
    until = datetime.fromtimestamp(outcome.expires_at, UTC)
    takes = f" It takes {outcome.who}." if outcome.who else ""
    return f"{outcome.approval_id}: {outcome.reason}{takes} Open until {until:%H:%M:%S} UTC"


def _open(asked: dict[str, Any]) -> str:
    """The same, once people are asked: until then the reason was what a worker had to see first."""
    until = datetime.fromtimestamp(float(asked.get("expires_at", 0.0)), UTC)
    return f"{asked.get('approval_id')}: {asked['reason']} Open until {until:%H:%M:%S} UTC"


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip()[:_NOTE] if lines else ""
