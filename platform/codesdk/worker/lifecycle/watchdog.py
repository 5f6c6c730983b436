"""Watchdog: ends the worker's process when one of its loops stops making progress.

It also touches a liveness file for supervisors on this machine (`codesdk up`, a container's health check). Unlike the
heartbeat it needs no database, so an outage of the database does not stop it.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from codesdk.domain.clock import Clock
from codesdk.errors import ExitCode

_log = logging.getLogger(__name__)

TICK_S = 1.0
"""Seconds between two checks."""
POLLER_TIMEOUT_S = 60.0
"""Seconds that one pass of the poller may take while heartbeats succeed. It only hands work to threads."""
HEARTBEAT_TIMEOUT_S = 300.0
"""Seconds that one heartbeat may take. Generous, since a stalled file system blocks it too. After ten leases the host is
lost anyway (see `hosts.lease_watch`)."""


class WatchedLoop(NamedTuple):
    """A loop that the watchdog checks."""

    name: str
    turns: Callable[[], int]
    """Completed passes."""
    patience_s: float
    """Seconds that one pass may take."""
    judged: Callable[[], bool] = lambda: True
    """Whether a stall counts now. False while something else, as a database outage, explains it."""


class Watchdog:
    """Runs from `start` to `stop` on its own thread, which blocks on nothing else."""

    def __init__(
        self,
        clock: Clock,
        parts: tuple[WatchedLoop, ...],
        sign: Path,
        end: Callable[[str], object] | None = None,
    ) -> None:
        """`sign`: the liveness file, touched while it exists; `end`: ends the process, given the name of the stalled loop."""
        self._clock = clock
        self._loops = parts
        self._liveness_file = sign
        self._end = end or abort_process
        self._looked_at = clock.monotonic()
        self._last_turns = {part.name: part.turns() for part in parts}
        self._stalled_s = {part.name: 0.0 for part in parts}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="codesdk-watchdog", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop checking: a shutdown has its own deadline."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def look(self) -> None:
        """Check each loop once. Touch the liveness file if all progress; otherwise end the process."""
        now = self._clock.monotonic()
        passed = min(now - self._looked_at, 2 * TICK_S)  # a process that was paused hasn't observed the others
        self._looked_at = now
        for part in self._loops:
            if self._is_stuck(part, passed):
                self._end(part.name)
                return
        with suppress(OSError):  # not created yet, or already removed
            os.utime(self._liveness_file)

    def _is_stuck(self, part: WatchedLoop, passed: float) -> bool:
        turns = part.turns()
        if turns != self._last_turns[part.name]:
            self._last_turns[part.name], self._stalled_s[part.name] = turns, 0.0
        elif part.judged():
            self._stalled_s[part.name] += passed
        return self._stalled_s[part.name] >= part.patience_s

    def _run(self) -> None:
        while not self._stopping.wait(TICK_S):
            self.look()


def abort_process(name: str) -> None:
    """Dump all stack traces and exit at once. A regular exit would wait for the thread that hangs."""
    faulthandler.dump_traceback(all_threads=True)
    print(f"error: WORKER_HANGS: the {name} of this worker hangs; it ends, and the next one goes on.", file=sys.stderr)  # noqa: T201
    sys.stderr.flush()
    os._exit(ExitCode.UNAVAILABLE)
