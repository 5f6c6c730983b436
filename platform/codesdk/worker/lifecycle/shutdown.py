"""How a worker leaves: the first signal asks it to drain, a second one ends it at once, and so does the time."""

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
"""What shells add to the number of a signal that ended a process."""
_TIMED_OUT = SIGNAL_EXIT_BASE + signal.SIGKILL
_STOP_LISTENING = 0
"""No signal's number: ends the listening."""


class Shutdown:
    """Listens for signals from `listening` on, which the main thread enters."""

    def __init__(self, leave: Callable[[int], object] = os._exit, within_s: float | None = None) -> None:
        """`leave` ends the process with that code, whatever its threads do. What ran is the next worker's to take up.

        `within_s`: seconds from the first signal until that, also where the worker is still starting.
        """
        self._leave = leave
        self._within_s = within_s
        self._asked = threading.Event()

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take the signals as long as the block lasts."""
        # The kernel may give a signal to any thread, and Python's handlers wait until the main thread goes on, which may
        # hang while the worker leaves. The wake-up file is written wherever the signal comes.
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
        """Until a signal came."""
        self._asked.wait()

    def ask(self) -> None:
        """As the first signal does, from any thread: the worker finds that it is not wanted any more."""
        self._asked.set()

    def force_exit_after(self, seconds: float) -> None:
        """Be gone after that time, whatever hangs by then: also a thread that the interpreter waits for at its end."""
        over = threading.Timer(seconds, self._force_exit, (seconds,))
        over.daemon = True
        over.start()

    def _force_exit(self, seconds: float) -> None:
        _log.error("not everything let go within %.0f s; leaving all the same", seconds)
        self._leave(_TIMED_OUT)

    def _listen(self, listen: int) -> None:
        received = 0
        while True:
            for number in os.read(listen, 64):
                if number == _STOP_LISTENING:
                    return
                if number not in SIGNALS:
                    continue  # the file tells of every signal that Python handles
                received += 1
                if received > 1:
                    self._leave(SIGNAL_EXIT_BASE + number)
                elif self._within_s is not None:
                    self.force_exit_after(self._within_s)
                self._asked.set()
