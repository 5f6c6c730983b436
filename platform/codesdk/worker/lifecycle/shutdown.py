"""Shutdown: the first signal starts draining; a second signal or the deadline ends the process at once."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_log = logging.getLogger(__name__)

SIGNALS = (signal.SIGTERM, signal.SIGINT)
SIGNAL_EXIT_BASE = 128
"""Shells report a process that a signal ended as this plus the signal number."""
_TIMED_OUT = SIGNAL_EXIT_BASE + signal.SIGKILL
_STOP_LISTENING = 0
"""Not a signal number: ends the listener thread."""


class Shutdown:
    """Handles signals while the main thread is inside `listening`."""

    def __init__(self, leave: Callable[[int], object] = os._exit, within_s: float | None = None) -> None:
        """`leave` ends the process with an exit code without waiting for its threads. The next worker recovers running calls.

        `within_s`: seconds from the first signal to the forced exit, even while the worker is starting.
        """
        self._leave = leave
        self._within_s = within_s
        self._asked = threading.Event()

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Handle signals for the duration of the block."""
        # Python runs signal handlers on the main thread only, which may hang during shutdown. The wake-up descriptor is
        # written whichever thread receives the signal.
        listen, wake = os.pipe()
        os.set_blocking(wake, False)
        thread = threading.Thread(target=self._listen, args=(listen,), name="codesdk-signals", daemon=True)
        thread.start()
        woken = signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        before = {number: signal.signal(number, lambda _number, _frame: None) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler or signal.SIG_DFL)
            signal.set_wakeup_fd(woken)
            os.write(wake, bytes((_STOP_LISTENING,)))
            thread.join()
            os.close(listen)
            os.close(wake)

    def wait(self) -> None:
        """Block until a shutdown is requested."""
        self._asked.wait()

    def ask(self) -> None:
        """Request a shutdown from any thread, as the first signal does."""
        self._asked.set()

    def force_exit_after(self, seconds: float) -> None:
        """Force the exit after `seconds`, even if a thread hangs that the interpreter would join."""
        over = threading.Timer(seconds, self._force_exit, (seconds,))
        over.daemon = True
        over.start()

    def _force_exit(self, seconds: float) -> None:
        _log.error("shutdown did not finish within %.0f s; forcing the exit", seconds)
        self._leave(_TIMED_OUT)

    def _listen(self, listen: int) -> None:
        received = 0
        while True:
            for number in os.read(listen, 64):
                if number == _STOP_LISTENING:
                    return
                if number not in SIGNALS:
                    continue  # the descriptor reports every signal that Python handles
                received += 1
                if received > 1:
                    self._leave(SIGNAL_EXIT_BASE + number)
                elif self._within_s is not None:
                    self.force_exit_after(self._within_s)
                self._asked.set()
