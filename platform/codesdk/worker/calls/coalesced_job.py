"""Work that is asked for more often than it needs to be done."""

from __future__ import annotations

import threading
from collections.abc import Callable


class CoalescedJob:
    """A look at the rows: one that has not begun yet sees all that asked for another. Safe to use from any thread.

    Each of a thousand questions asks its worker to look. In a pool that took all of these looks, a cancel would wait
    for a thousand that find nothing.
    """

    def __init__(
        self, submit: Callable[[Callable[[], None]], object], work: Callable[[], None], *, most: int = 1
    ) -> None:
        """`submit` has it run on some thread, later; `most`: how many wait for one at once."""
        self._submit = submit
        self._work = work
        self._most = most
        self._lock = threading.Lock()
        self._waiting = 0

    def ask(self) -> None:
        """Have the work done once more, from a moment after now."""
        with self._lock:
            if self._waiting >= self._most:
                return
            self._waiting += 1
        try:
            self._submit(self._run)
        except BaseException:
            self._dequeue()
            raise

    def _run(self) -> None:
        self._dequeue()  # first: who asks from here on may have come too late for this look
        self._work()

    def _dequeue(self) -> None:
        with self._lock:
            self._waiting -= 1
