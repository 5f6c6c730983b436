"""What the record says of a run: whether each call has one lawful history, how often it ran, how soon a death was told."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from codesdk.domain.invariants import check
from codesdk.eventlog.hints import LocalHints
from codesdk.eventlog.log import Log
from codesdk.storage.database import Database
from stage import read_whole


class Happened(Protocol):
    """A fault of `chaos`."""

    kind: str
    at: float
    host: str | None


class Attempt(NamedTuple):
    """One attempt that was begun."""

    mark: str
    """What its line writes down; empty where it writes nothing."""
    host: str
    started: float
    """Seconds since the epoch."""
    ended: float
    code: str
    """`ok`, or the code of what went wrong."""


class Record:
    """All sessions' logs, read once."""

    def __init__(self, database: Database, clock: Any, marks: Any) -> None:
        """`marks`: finds the marks in a text."""
        self._marks = marks
        self.lawless: list[str] = []
        self.attempts: list[Attempt] = []
        log = Log(database, clock, LocalHints())
        with database.read() as connection:
            query = "SELECT s.id, h.name FROM sessions s JOIN hosts h ON h.id = s.host_id"
            sessions = [(row.id, row.name) for row in connection.exec_driver_sql(query)]
        for session, host in sessions:
            self._add(session, host, read_whole(log, session))

    def _add(self, session: str, host: str, events: list[Any]) -> None:
        broken = check(events)
        if broken is not None:
            self.lawless.append(f"{session}: {broken.message}")
        inputs: dict[str, str] = {}
        started: dict[tuple[str, int], float] = {}
        ends: Counter[str] = Counter()
        for event in events:
            told, kind = event.payload, event.type.value
            call, attempt = told.get("tool_call_id"), told.get("attempt")
            if kind == "tool.call.requested":
                found = self._marks.findall(str(told.get("input")))
                inputs[call] = found[0] if found else ""
            elif kind == "tool.call.started":
                started[call, attempt] = _seconds(event.time)
            elif kind == "tool.call.completed":
                code = "ok" if not told.get("is_error") else str(told.get("code") or "failed")
                at = started.pop((call, attempt))
                self.attempts.append(Attempt(inputs[call], host, at, _seconds(event.time), code))
            if kind in ("tool.call.completed", "tool.call.denied"):
                ends[call] += 1
        self.lawless += [f"{session}: attempt {attempt} of {call} has no end" for call, attempt in started]
        self.lawless += [f"{session}: {call} has no end" for call in inputs if not ends[call]]

    def ran_too_often(self, ran: Mapping[str, int]) -> dict[str, str]:
        """The lines that ran more often than attempts of theirs were begun, or that no attempt but an `ok` one has."""
        begun = Counter(attempt.mark for attempt in self.attempts)
        well = Counter(attempt.mark for attempt in self.attempts if attempt.code == "ok")
        wrong = {mark: f"{times} times in {begun[mark]}" for mark, times in ran.items() if times > begun[mark]}
        # What ended well has run: where all of a mark's attempts did, each of them once.
        missing = {
            mark: f"{ran.get(mark, 0)} times in {times}"
            for mark, times in well.items()
            if mark and ran.get(mark, 0) < times
        }
        return wrong | missing

    def executions_per_attempt(self, ran: Mapping[str, int]) -> float:
        """Of the attempts that were begun and count themselves."""
        begun = sum(1 for attempt in self.attempts if attempt.mark)
        return round(sum(ran.values()) / max(1, begun), 4)

    def from_death_to_end(self, faults: Iterable[Happened]) -> dict[str, dict[str, Any]]:
        """Seconds from each fault to the end of the calls that were under way where it struck, by its kind.

        `recovered`: those that ended well after all; their own second of work is in it.
        """
        found: dict[str, list[float]] = defaultdict(list)
        well: Counter[str] = Counter()
        for fault in faults:
            for attempt in self.attempts:
                if attempt.started <= fault.at < attempt.ended and fault.host in (None, attempt.host):
                    found[fault.kind].append(attempt.ended - fault.at)
                    well[fault.kind] += attempt.code == "ok"
        return {
            kind: {
                "calls": len(times),
                "recovered": well[kind],
                "median_s": round(statistics.median(times), 2),
                "worst_s": round(max(times), 2),
            }
            for kind, times in sorted(found.items())
        }


def _seconds(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()
