"""Brings back processes that crashed, and those that hang: at once the first time, then with growing pauses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from codesdk.provision.command import Say

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
HEALTHY_S = 60.0
"""A process that ran this long has recovered: its next crash counts as the first."""
HUNG_S = 30.0
"""Seconds without a sign of life after which a process hangs, where the caller says nothing else."""
GAP_S = 1.0
"""A look counts at most this much of the time since the one before: who was stopped itself has seen nobody hang."""


class Restartable(Protocol):
    """What a watch needs of a process."""

    name: str

    @property
    def ended(self) -> int | None:
        """Exit code; None while it runs."""
        ...

    def sign(self) -> object:
        """Something that changes while it lives; None where nothing is to be told by it now."""
        ...

    def kill(self) -> None:
        """End it, whatever it does."""
        ...

    def last_words(self) -> str:
        """Why it ended, as far as it said."""
        ...

    def start(self) -> None:
        """Start it again."""
        ...


class _Watched:
    def __init__(self, process: Restartable) -> None:
        self.process = process
        self.pause_s = FIRST_PAUSE_S
        self.started_at: float | None = None
        self.due_at: float | None = None
        self.sign: object = None
        self.still_s = 0.0
        """For how long the sign has been the same."""
        self.looked_at: float | None = None

    def still(self, now: float) -> float:
        """For how many seconds it has given no sign, though it should."""
        passed = 0.0 if self.looked_at is None else min(now - self.looked_at, GAP_S)
        self.looked_at = now
        before, self.sign = self.sign, self.process.sign()
        self.still_s = self.still_s + passed if self.sign is not None and self.sign == before else 0.0
        return self.still_s


class Watch:
    """Looks at processes; the caller gives the time."""

    def __init__(self, processes: Sequence[Restartable], warn: Say, hung_s: float = HUNG_S) -> None:
        """`hung_s`: seconds without a sign of life after which one is ended."""
        self._watched = [_Watched(process) for process in processes]
        self._warn = warn
        self._hung_s = hung_s

    def look(self, now: float) -> None:
        """Start what is due, end what hangs, and plan a start for what has ended. `now`: on the monotonic clock."""
        for watched in self._watched:
            if watched.started_at is None:
                watched.started_at = now
            if watched.due_at is not None:
                if now >= watched.due_at:
                    watched.due_at = None
                    watched.started_at = now
                    watched.process.start()
            elif watched.process.ended is not None:
                self._plan(watched, now)
            elif watched.still(now) >= self._hung_s:
                watched.still_s = 0.0
                self._warn(f"The {watched.process.name} gave no sign of life for {self._hung_s:g} s; ending it.")
                watched.process.kill()

    def _plan(self, watched: _Watched, now: float) -> None:
        process = watched.process
        if watched.started_at is not None and now - watched.started_at >= HEALTHY_S:
            watched.pause_s = FIRST_PAUSE_S
        watched.due_at = now + watched.pause_s
        code = process.ended
        how = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
        self._warn(f"The {process.name} ended ({how}): {process.last_words()} Restarting in {watched.pause_s:g} s.")
        watched.pause_s = min(watched.pause_s * 2, LONGEST_PAUSE_S)
