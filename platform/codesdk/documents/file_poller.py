"""Looks at files again and again, on a thread of its own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

POLL_S = 1.0
"""Seconds between two looks at files that people edit."""
CLOSE_S = 5.0
"""Seconds that a look under way may take to end."""
_log = logging.getLogger(__name__)


class FilePoller:
    """Calls `look` every `POLL_S` from `start` until `close`. What it raises is logged, and ends nothing."""

    def __init__(self, what: str, look: Callable[[], None], *, thread: str) -> None:
        """`what`: is looked at, for the log; `thread`: the thread's name."""
        self._what = what
        self._look = look
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=thread, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """Stop looking; also where it never began."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join(timeout=CLOSE_S)

    def _run(self) -> None:
        while not self._closing.wait(POLL_S):
            try:
                self._look()
            except Exception:  # noqa: BLE001 (a defect here must not end the watch: what was good last stays)
                _log.exception("looking at %s failed", self._what)
