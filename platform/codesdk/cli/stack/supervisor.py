"""Restarts crashed and hung processes: immediately the first time, then with exponential backoff."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from codesdk.provision.system.command import ProgressCallback

MIN_BACKOFF_S = 0.5
MAX_BACKOFF_S = 30.0
HEALTHY_S = 60.0
"""A process that ran this long has recovered: its next crash counts as the first."""
HUNG_S = 30.0
"""Default seconds without a heartbeat after which a process counts as hung."""
MAX_STEP_S = 1.0
"""Maximum time that one check adds to the silence, so that a paused supervisor doesn't mistake its own pause for a
hang.
"""


class Restartable(Protocol):
    """A process that the supervisor can restart."""

    name: str

    @property
    def ended(self) -> int | None:
        """Return the exit code; None while it runs."""
        ...

    def last_heartbeat(self) -> object:
        """Return the last heartbeat; None if there is none to judge by."""
        ...

    def kill(self) -> None:
        """Kill the process."""
        ...

    def output_tail(self) -> str:
        """Return the end of its output, to explain a crash."""
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
        self.heartbeat: object = None
        self.silent_s = 0.0
        """Seconds since the heartbeat last changed."""
        self.checked_at: float | None = None

    def seconds_without_heartbeat(self, now: float) -> float:
        """Return the seconds since its last heartbeat, if it should send any."""
        passed = 0.0 if self.checked_at is None else min(now - self.checked_at, MAX_STEP_S)
        self.checked_at = now
        before, self.heartbeat = self.heartbeat, self.process.last_heartbeat()
        self.silent_s = self.silent_s + passed if self.heartbeat is not None and self.heartbeat == before else 0.0
        return self.silent_s


class Supervisor:
    """Checks processes each time the caller calls `check`."""

    def __init__(self, processes: Sequence[Restartable], warn: ProgressCallback, hung_s: float = HUNG_S) -> None:
        """`hung_s`: seconds without a heartbeat after which a process is killed."""
        self._processes = [_ProcessState(process) for process in processes]
        self._warn = warn
        self._hung_s = hung_s

    def check(self, now: float) -> None:
        """Start what is due, kill what hangs, and schedule a restart of what has ended. `now`: monotonic clock."""
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
                self._warn(f"The {watched.process.name} sent no heartbeat for {self._hung_s:g} s; killing it.")
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
