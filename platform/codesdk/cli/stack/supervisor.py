"""Brings back processes that crashed, and those that hang: at once the first time, then with growing pauses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from codesdk.provision.system.command import ProgressCallback

MIN_BACKOFF_S = 0.5
MAX_BACKOFF_S = 30.0
HEALTHY_S = 60.0
"""A process that ran this long has recovered: its next crash counts as the first."""
HUNG_S = 30.0
"""Seconds without a sign of life after which a process hangs, where the caller says nothing else."""
MAX_STEP_S = 1.0
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

    def output_tail(self) -> str:
        """Why it ended, as far as it said."""
        ...

    def start(self) -> None:
        """Start it again."""
        ...


class _ProcessState:
    def __init__(self, process: Restartable) -> None:
        self.process = process
        self.backoff_s = MIN_BACKOFF_S
        self.started_at: float | None = None
        self.due_at: float | None = None
        self.sign: object = None
        self.silent_s = 0.0
        """For how long the sign has been the same."""
        self.checked_at: float | None = None

    def seconds_without_heartbeat(self, now: float) -> float:
        """For how many seconds it has given no sign, though it should."""
        passed = 0.0 if self.checked_at is None else min(now - self.checked_at, MAX_STEP_S)
        self.checked_at = now
        before, self.sign = self.sign, self.process.sign()
        self.silent_s = self.silent_s + passed if self.sign is not None and self.sign == before else 0.0
        return self.silent_s


class Supervisor:
    """Looks at processes; the caller gives the time."""

    def __init__(self, processes: Sequence[Restartable], warn: ProgressCallback, hung_s: float = HUNG_S) -> None:
        """`hung_s`: seconds without a sign of life after which one is ended."""
        self._processes = [_ProcessState(process) for process in processes]
        self._warn = warn
        self._hung_s = hung_s

    def look(self, now: float) -> None:
        """Start what is due, end what hangs, and plan a start for what has ended. `now`: on the monotonic clock."""
        for watched in self._processes:
            if watched.started_at is None:
                watched.started_at = now
            if watched.due_at is not None:
                if now >= watched.due_at:
                    watched.due_at = None
                    watched.started_at = now
                    watched.process.start()
            elif watched.process.ended is not None:
                self._schedule_restart(watched, now)
            elif watched.seconds_without_heartbeat(now) >= self._hung_s:
                watched.silent_s = 0.0
                self._warn(f"The {watched.process.name} gave no sign of life for {self._hung_s:g} s; ending it.")
                watched.process.kill()

    def _schedule_restart(self, watched: _ProcessState, now: float) -> None:
        process = watched.process
        if watched.started_at is not None and now - watched.started_at >= HEALTHY_S:
            watched.backoff_s = MIN_BACKOFF_S
        watched.due_at = now + watched.backoff_s
        code = process.ended
        how = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
        self._warn(f"The {process.name} ended ({how}): {process.output_tail()} Restarting in {watched.backoff_s:g} s.")
        watched.backoff_s = min(watched.backoff_s * 2, MAX_BACKOFF_S)
