"""Handles SIGINT, SIGTERM and SIGHUP (terminal closed): they interrupt a start, end a run, and don't disturb a stop."""

from __future__ import annotations

import signal
import time
from types import FrameType


class Signals:
    """Installs the handlers. Only the first signal counts, so that more of them can't break a running stop."""

    def __init__(self) -> None:
        self._interrupts = True
        # A plain flag, no lock: the handler runs in the main thread, which may hold the lock.
        self.caught = False
        """Whether a signal arrived."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._on_signal)

    def wait_for_stop(self, seconds: float) -> bool:
        """Wait up to that long; return whether a signal arrived, now or earlier."""
        if not self.caught:
            time.sleep(seconds)
        return self.caught

    def ignore_from_now(self) -> None:
        """Only record signals from now on."""
        self._interrupts = False

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        first, self.caught = not self.caught, True
        if first and self._interrupts:
            raise KeyboardInterrupt
