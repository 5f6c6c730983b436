"""Judges a run by its record: whether each call has a valid history that its client knows, how often each attempt ran,
and the outcomes and delays of the calls that a kill hit.
"""

from __future__ import annotations

import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from clients import End, printed

from codesdk.domain.invariants import first_violation
from codesdk.eventlog.hints import LocalHints
from codesdk.eventlog.log import EventLog
from codesdk.storage.database import Database
from stage import read_whole

MARK = re.compile(r"\bm\d+-\d+\b")
RUN = re.compile(r"^(m\d+-\d+) (\d+\.\d{9})$", re.MULTILINE)
"""What a line writes down when it runs: its call's mark, and the seconds since the epoch."""
EARLY_S = 1.0
"""A sandbox's own clock (gVisor's) may be behind by less."""
LATE_S = 5.0
"""What a runner was handed just before its engine died begins a little later, also on a machine that does much else."""
UNASKED = ("SESSION_CLOSED", "APPROVAL_PENDING")
"""Ends that clients know without the call's own: the session's, or that somebody must be asked, whom nobody asks here."""


class Happened(Protocol):
    """A fault of `chaos`."""

    kind: str
    at: float
    host: str | None


class Run(NamedTuple):
    """One execution, as the line wrote it down in its workspace."""

    mark: str
    at: float
    """Seconds since the epoch."""


def runs_in(text: str) -> set[Run]:
    """Those that a workspace's file, or a part of it, tells of."""
    return {Run(mark, float(at)) for mark, at in RUN.findall(text)}


class Attempt(NamedTuple):
    """One attempt that was begun."""

    call: str
    mark: str
    """What its line writes down; empty where it writes nothing."""
    host: str
    started: float
    """Seconds since the epoch."""
    ended: float
    code: str
    """`ok`, or the code of what went wrong."""

    def may_be(self, run: Run) -> bool:
        """Whether that execution lies within it."""
        return run.mark == self.mark and self.started - EARLY_S <= run.at <= self.ended + LATE_S


class Told(NamedTuple):
    """The end of a call, as its session's log tells it."""

    code: str
    output: str


class Record:
    """All sessions' logs, read once."""

    def __init__(self, database: Database, clock: Any) -> None:
        self.lawless: list[str] = []
        self.attempts: list[Attempt] = []
        self.runs: set[Run] = set()
        """What results tell of executions, whoever was or was not told of those results."""
        self._ends: dict[str, Told] = {}
        log = EventLog(database, clock, LocalHints())
        with database.read() as connection:
            query = "SELECT s.id, h.name FROM sessions s JOIN hosts h ON h.id = s.host_id"
            sessions = [(row.id, row.name) for row in connection.exec_driver_sql(query)]
        for session, host in sessions:
            self._add(session, host, read_whole(log, session))

    def _add(self, session: str, host: str, events: list[Any]) -> None:
        broken = first_violation(events)
        if broken is not None:
            self.lawless.append(f"{session}: {broken.message}")
        inputs: dict[str, str] = {}
        started: dict[tuple[str, int], float] = {}
        ends: Counter[str] = Counter()
        for event in events:
            told, kind = event.payload, event.type.value
            call, attempt = told.get("tool_call_id"), told.get("attempt")
            if kind == "tool.call.requested":
                found = MARK.findall(str(told.get("input")))
                inputs[call] = found[0] if found else ""
            elif kind == "tool.call.started":
                started[call, attempt] = _seconds(event.time)
            elif kind == "tool.call.completed":
                end = self._ends[call] = _told(told)
                self.runs |= runs_in(end.output)
                at = started.pop((call, attempt))
                self.attempts.append(Attempt(call, inputs[call], host, at, _seconds(event.time), end.code))
            elif kind == "tool.call.denied":
                self._ends[call] = Told(str(told.get("code")), "")
            if kind in ("tool.call.completed", "tool.call.denied"):
                ends[call] += 1
        self.lawless += [f"{session}: attempt {attempt} of {call} has no end" for call, attempt in started]
        self.lawless += [f"{session}: {call} has no end" for call in inputs if not ends[call]]

    def told_otherwise(self, answers: Iterable[End]) -> list[str]:
        """The calls of which a client was told something else than the record says, in code or output."""
        return [
            f"{end.call}: told {end.code} {end.output!r}, recorded {recorded}"
            for end in answers
            if end.code not in UNASKED and (recorded := self._ends.get(end.call)) != Told(end.code, end.output)
        ]

    def ran_too_often(self, ran: Collection[Run]) -> list[str]:
        """Executions that no attempt of their own has, and attempts that ended well without one.

        An attempt has one execution at most, which lies between its start and its end: so a second one of an attempt is
        not taken for that of another attempt that never ran.
        """
        marks: dict[str, tuple[list[Attempt], list[Run]]] = defaultdict(lambda: ([], []))
        for attempt in self.attempts:
            marks[attempt.mark][0].append(attempt)
        for run in ran:
            marks[run.mark][1].append(run)
        wrong = []
        for mark, (attempts, runs) in sorted(marks.items()):
            without = len(runs) - _pairs(attempts, runs)
            if without:
                wrong.append(f"{mark}: {without} of {runs} in none of {attempts}")
            well = [attempt for attempt in attempts if attempt.code == "ok"]
            if mark and _pairs(well, runs) < len(well):
                wrong.append(f"{mark}: an attempt of {well} has none of {runs}")
        return wrong

    def executions_per_attempt(self, ran: Collection[Run]) -> float:
        """Of the attempts that were begun and count themselves."""
        begun = sum(1 for attempt in self.attempts if attempt.mark)
        return round(len(ran) / max(1, begun), 4)

    def from_death_to_end(self, faults: Sequence[Happened]) -> dict[str, dict[str, Any]]:
        """Seconds from each fault to the end of the calls that were under way where it struck, by its kind.

        `recovered`: those that ended well after all; their own second of work is in it.
        """
        found: dict[str, list[float]] = defaultdict(list)
        well: Counter[str] = Counter()
        for fault in faults:
            for call in self._calls():
                if call.started <= fault.at < call.ended and fault.host in (None, call.host):
                    found[fault.kind].append(call.ended - fault.at)
                    well[fault.kind] += call.code == "ok"
        return {
            kind: {
                "calls": len(times),
                "recovered": well[kind],
                "median_s": round(statistics.median(times), 2),
                "worst_s": round(max(times), 2),
            }
            for kind, times in sorted(found.items())
        }

    def where_engines_live(self, faults: Sequence[Happened]) -> dict[str, int]:
        """The calls on hosts whose engine nothing was done to, and those of them that some other death met."""
        dead = {fault.host for fault in faults if fault.kind.startswith("engine")}
        steady = [call for call in self._calls() if call.host not in dead]
        met = [
            call
            for call in steady
            if any(call.started <= fault.at < call.ended and fault.host in (None, call.host) for fault in faults)
        ]
        return {
            "calls": len(steady),
            "ended_well": sum(call.code == "ok" for call in steady),
            "met_a_death": len(met),
            "recovered": sum(call.code == "ok" for call in met),
        }

    def _calls(self) -> list[Attempt]:
        """From the start of each call's first attempt to the end of its last one."""
        calls: dict[str, Attempt] = {}
        for attempt in self.attempts:
            first = calls.get(attempt.call, attempt)
            calls[attempt.call] = attempt._replace(started=first.started)
        return list(calls.values())


def _pairs(attempts: Iterable[Attempt], runs: Iterable[Run]) -> int:
    """How many of the runs have an attempt of their own, at most: each the one that ends first of those that are left."""
    left = sorted(attempts, key=lambda attempt: attempt.ended)
    paired = 0
    for run in sorted(runs):
        own = next((attempt for attempt in left if attempt.may_be(run)), None)
        if own is not None:
            left.remove(own)
            paired += 1
    return paired


def _told(completed: Any) -> Told:
    code = "ok" if not completed.get("is_error") else str(completed.get("code") or "failed")
    said = completed.get("result_preview")
    return Told(code, printed(said) if isinstance(said, dict) else "")


def _seconds(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()
