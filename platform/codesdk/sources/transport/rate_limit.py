"""How much a server may say unasked. Pure."""

from __future__ import annotations

from collections import deque

WINDOW_S = 10.0
MAX_MESSAGES = 2000
"""In one window. Servers that report progress send some tens a second."""
MAX_BYTES = 64 * 1024 * 1024
"""In one window."""
_SLOT_S = 0.1
"""Seconds whose messages are counted as one: what is kept of a window is bounded, whatever comes."""


class RateLimit:
    """Counts what comes in a sliding window."""

    def __init__(self, messages: int = MAX_MESSAGES, size: int = MAX_BYTES, window_s: float = WINDOW_S) -> None:
        self._messages = messages
        self._size = size
        self._window_s = window_s
        self._slots: deque[tuple[float, int, int]] = deque()
        """When a slot began, its messages, its bytes."""
        self._seen = 0
        self._bytes = 0

    def keeps(self, size: int, now: float, messages: int = 1) -> bool:
        """Whether `messages` more of `size` bytes together are within bounds. `now`: monotonic seconds."""
        while self._slots and self._slots[0][0] <= now - self._window_s - _SLOT_S:
            _, seen, taken = self._slots.popleft()
            self._seen -= seen
            self._bytes -= taken
        if self._slots and now < self._slots[-1][0] + _SLOT_S:
            began, seen, taken = self._slots.pop()
            self._slots.append((began, seen + messages, taken + size))
        else:
            self._slots.append((now, messages, size))
        self._seen += messages
        self._bytes += size
        return self._seen <= self._messages and self._bytes <= self._size
