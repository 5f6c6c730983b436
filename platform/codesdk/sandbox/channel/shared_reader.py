"""Whoever waits reads: threads that wait for messages of one stream take turns at it.

A thread of its own for the reading costs two switches of threads for each answer, a tenth of what an exec takes. Here
the thread that waits reads itself, and hands out what is another's; when it has what it wanted, another takes the turn.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from queue import SimpleQueue

Inbox = SimpleQueue[object]
_WAKE_UP = object()


class SharedReader:
    """The turn at a stream."""

    def __init__(self, read: Callable[[float], None]) -> None:
        """Read: wait for at most so many seconds, and put what came into the inboxes that it is for. Must not raise."""
        self._read = read
        self._reader_lock = threading.Lock()
        self._lock = threading.Lock()
        self._waiting: list[Inbox] = []

    def wait(self, inbox: Inbox, timeout_s: float) -> object:
        """The inbox's next item.

        Raises:
            Empty: none in time.
        """
        deadline = time.monotonic() + timeout_s
        with self._lock:
            self._waiting.append(inbox)
        try:
            while True:
                left = max(0.0, deadline - time.monotonic())
                if self._reader_lock.acquire(blocking=False):
                    try:
                        if inbox.empty():
                            self._read(left)
                    finally:
                        self._reader_lock.release()
                    if inbox.empty() and time.monotonic() < deadline:
                        continue
                    left = 0.0
                item = inbox.get(timeout=left)
                if item is not _WAKE_UP:
                    return item
        finally:
            self._leave(inbox)

    def poll(self) -> None:
        """Take what has come, if nobody else reads."""
        if self._reader_lock.acquire(blocking=False):
            try:
                self._read(0.0)
            finally:
                self._reader_lock.release()
            self._wake_next()

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """With-block of a thread that reads for all."""
        with self._reader_lock:
            yield
        self._wake_next()

    def _leave(self, inbox: Inbox) -> None:
        with self._lock:
            self._waiting.remove(inbox)
        self._wake_next()

    def _wake_next(self) -> None:
        # Who waits has said so before it tried for the turn: it either got the turn or is seen here.
        with self._lock:
            if self._waiting and not self._reader_lock.locked():
                self._waiting[0].put(_WAKE_UP)
