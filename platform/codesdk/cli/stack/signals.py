"""SIGINT, SIGTERM and SIGHUP (the terminal was closed): they interrupt a start, end a run, and leave a stop alone."""

from __future__ import annotations

import signal
import time
from types import FrameType


class Signals:
    """Catches them from now on. The first one counts; more of them must not break a stop that is under way."""

    def __init__(self) -> None:
        self._interrupts = True
        # A plain flag: a handler runs between two steps of the main thread, where a lock could be held by it already.
        self.caught = False
        """Whether one came."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._on_signal)

    def wait_for_stop(self, seconds: float) -> bool:
        """Wait that long; whether a signal came, now or earlier."""
        if not self.caught:
            time.sleep(seconds)
        return self.caught

    def ignore_from_now(self) -> None:
        """From here on a signal is noted and interrupts nothing."""
        self._interrupts = False

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        first, self.caught = not self.caught, True
        if first and self._interrupts:
            raise KeyboardInterrupt
