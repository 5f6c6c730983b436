"""Says on this machine that the worker's process lives, and ends it where a part of it hangs.

The pulse says so in the database, and so stands still with it. This looks at no database: what it touches is for those
who watch from beside (`codesdk up`, a container's health check), who see when the whole process is stopped.
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
"""Seconds between two looks, and two touches of the file."""
POLLER_TIMEOUT_S = 60.0
"""Seconds that the poller, which only hands over, may take for one turn while the pulse beats: then it hangs."""
HEARTBEAT_TIMEOUT_S = 300.0
"""Seconds that one heartbeat may take to be taken or refused: a file system that stands still holds it up as well, and is
no fault of ours. After ten leases nobody waits for this worker any more (see `hosts.watch`)."""


class WatchedLoop(NamedTuple):
    """A thread that goes round."""

    name: str
    turns: Callable[[], int]
    """How often it has come round."""
    patience_s: float
    """Seconds that one turn may take."""
    judged: Callable[[], bool] = lambda: True
    """Whether it is its own fault now that it does not come round."""


class Watchdog:
    """Beats from `start` to `stop`, on a thread of its own that waits for nothing else."""

    def __init__(
        self,
        clock: Clock,
        parts: tuple[WatchedLoop, ...],
        sign: Path,
        end: Callable[[str], object] | None = None,
    ) -> None:
        """`sign`: the file to touch, while it is there; `end`: ends the process, saying which part hangs."""
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
        """Begin to beat."""
        self._thread.start()

    def stop(self) -> None:
        """Beat no more: a worker that leaves has its own time."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def look(self) -> None:
        """Look once at each part; touch the sign if all come round, or end the process."""
        now = self._clock.monotonic()
        passed = min(now - self._looked_at, 2 * TICK_S)  # whoever was stopped has not seen anybody hang
        self._looked_at = now
        for part in self._loops:
            if self._is_stuck(part, passed):
                self._end(part.name)
                return
        with suppress(OSError):  # not served yet, or not any more
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
    """End the process as a crash would, with where each thread stands: whatever hangs would keep it from leaving."""
    faulthandler.dump_traceback(all_threads=True)
    print(f"error: WORKER_HANGS: the {name} of this worker hangs; it ends, and the next one goes on.", file=sys.stderr)  # noqa: T201
    sys.stderr.flush()
    os._exit(ExitCode.UNAVAILABLE)
