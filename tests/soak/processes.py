"""A process of the product that is killed or stopped, and restarted whenever it has ended, as by a supervisor."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import evidence

from codesdk.settings import runfile

READY_S = 300.0
"""Seconds in which it must serve, on a machine that does much else."""
LEFT_S = 120.0
"""Seconds in which one that was told to end has left: a worker's own limit is 80."""
PAUSE_S = 0.3
"""Before one that ended by itself is started again."""
LOOK_S = 0.02


class Process:
    """One of them. Safe to use from the threads of a test: who disturbs, and who looks after all."""

    def __init__(self, name: str, argv: list[str], environment: Mapping[str, str], data_dir: Path, log: Path) -> None:
        """`name`: as the product says it when it is ready (`api`, `worker`)."""
        self.log = log
        self.ended_by_itself = 0
        self._name = name
        self._argv = argv
        self.environment = dict(environment)
        """Of the next one that is started."""
        self._data_dir = data_dir
        self._guard = threading.RLock()
        self._due = 0.0
        self._running: subprocess.Popen[bytes] | None = None
        self._start()

    def _start(self) -> None:
        with self.log.open("ab") as log:
            self._running = subprocess.Popen(
                self._argv, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    @property
    def is_ready(self) -> bool:
        """Whether the process that was started last says that it serves: not what a killed one left."""
        said = runfile.read(self._data_dir, self._name)
        with self._guard:
            return said is not None and self._running is not None and said["pid"] == self._running.pid

    def wait_ready(self, stop: threading.Event | None = None) -> bool:
        """Until it serves; False where `stop` came first.

        Raises:
            AssertionError: not in time; with the end of its log.
        """
        deadline = time.monotonic() + READY_S
        while not self.is_ready:
            if stop is not None and stop.is_set():
                return False
            assert time.monotonic() < deadline, f"no {self._name} in {READY_S:.0f} s:\n{evidence.tail(self.log)}"
            time.sleep(LOOK_S)
        return True

    def tend(self) -> None:
        """Start it again where it has ended by itself."""
        if not self._guard.acquire(blocking=False):
            return  # it is just being told to end, which takes its time
        try:
            if self._running is None or self._running.poll() is None:
                return
            if not self._due:
                self.ended_by_itself += 1
                self._due = time.monotonic() + PAUSE_S
            elif time.monotonic() >= self._due:
                self._due = 0.0
                self._start()
        finally:
            self._guard.release()

    def kill(self) -> None:
        """As the kernel does when memory is short; it starts again at once."""
        with self._guard:
            assert self._running is not None
            self._running.kill()
            self._running.wait()
            self._due = 0.0
            self._start()

    def tell(self) -> None:
        """Ask it to end, as a supervisor does, and start it again when it has."""
        with self._guard:
            self.end()
            self._due = 0.0
            self._start()

    def end(self) -> None:
        """Ask it to end, for good."""
        with self._guard:
            running, self._running = self._running, None
            if running is None:
                return
            running.terminate()
            try:
                running.wait(LEFT_S)
            except subprocess.TimeoutExpired:
                running.kill()
                running.wait()
                raise AssertionError(
                    f"the {self._name} did not leave in {LEFT_S:.0f} s:\n{evidence.tail(self.log)}"
                ) from None

    def close(self) -> None:
        """End it whatever it does."""
        with self._guard:
            running, self._running = self._running, None
            if running is not None:
                running.kill()
                running.wait()
