"""How much a server may say unasked. Pure."""

from __future__ import annotations

from collections import deque

WINDOW_S = 10.0
MESSAGES = 2000
"""In one window. Servers that report progress send some tens a second."""
BYTES = 64 * 1024 * 1024
"""In one window."""


class Pace:
    """Counts what comes in a sliding window."""

    def __init__(self, messages: int = MESSAGES, size: int = BYTES, window_s: float = WINDOW_S) -> None:
        self._messages = messages
        self._size = size
        self._window_s = window_s
        self._seen: deque[tuple[float, int]] = deque()
        self._bytes = 0

    def keeps(self, size: int, now: float) -> bool:
        """Whether one more message of that size is within bounds. `now`: monotonic seconds."""
        while self._seen and self._seen[0][0] <= now - self._window_s:
            self._bytes -= self._seen.popleft()[1]
        self._seen.append((now, size))
        self._bytes += size
        return len(self._seen) <= self._messages and self._bytes <= self._size
