"""Polls files for changes on a background thread."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

POLL_S = 1.0
"""Seconds between polls."""
CLOSE_S = 5.0
"""Seconds that `close` waits for a poll in progress."""
_log = logging.getLogger(__name__)


class FilePoller:
    """Calls `check` every `POLL_S` seconds from `start` until `close`. Exceptions are logged; polling goes on."""

    def __init__(self, what: str, check: Callable[[], None], *, thread: str) -> None:
        """`what`: what is polled, for the log; `thread`: name of the thread."""
        self._what = what
        self._check = check
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=thread, daemon=True)

    def start(self) -> None:
        """Start polling."""
        self._thread.start()

    def close(self) -> None:
        """Stop polling. Safe to call without `start`."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join(timeout=CLOSE_S)

    def _run(self) -> None:
        while not self._closing.wait(POLL_S):
            try:
                self._check()
            except Exception:  # noqa: BLE001 (polling must go on; the last good state stays in force)
                _log.exception("checking %s for changes failed", self._what)
