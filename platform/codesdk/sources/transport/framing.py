"""Splits a server's stdout into lines and messages, and limits their rate. All input is hostile. Pure."""

from __future__ import annotations

from collections import deque

import mcp_types as types
from mcp.shared.message import SessionMessage

MAX_LINE = 4 * 1024 * 1024
"""Bytes of one message: the largest file that a built-in tool reads."""
MAX_NON_MESSAGES = 200
"""Lines that aren't messages tolerated per server: some print a greeting to stdout."""


class ServerMisbehaved(Exception):
    """The server exceeded a limit; the text completes "the server …"."""


class LineBuffer:
    """Splits bytes into lines, buffering at most one incomplete line."""

    def __init__(self, limit: int = MAX_LINE) -> None:
        self._limit = limit
        self._partial = bytearray()
        self._searched = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Add bytes; returns the completed lines.

        Raises:
            ServerMisbehaved: a line exceeds the limit.
        """
        self._partial += data
        found = []
        start = 0
        while (end := self._partial.find(b"\n", max(start, self._searched))) >= 0:
            found.append(bytes(self._partial[start:end]))
            start = end + 1
        del self._partial[:start]
        self._searched = len(self._partial)
        if len(self._partial) > self._limit or any(len(line) > self._limit for line in found):
            raise ServerMisbehaved(f"sent a message of more than {self._limit} bytes")
        return found


def parse_message(line: bytes) -> SessionMessage | None:
    """The message in a line; None if it is not a JSON-RPC message."""
    try:
        return SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError:
        return None


WINDOW_S = 10.0
MAX_MESSAGES = 2000
"""Messages per window. Servers that report progress send some tens per second."""
MAX_BYTES = 64 * 1024 * 1024
"""Bytes per window."""
_SLOT_S = 0.1
"""Resolution of the window in seconds, which bounds its memory."""


class RateLimit:
    """Counts messages and bytes in a sliding window."""

    def __init__(self, messages: int = MAX_MESSAGES, size: int = MAX_BYTES, window_s: float = WINDOW_S) -> None:
        self._messages = messages
        self._size = size
        self._window_s = window_s
        self._slots: deque[tuple[float, int, int]] = deque()
        """(start, messages, bytes) of each slot."""
        self._seen = 0
        self._bytes = 0

    def keeps(self, size: int, now: float, messages: int = 1) -> bool:
        """Count messages of `size` bytes together; returns whether they are within limits. `now`: monotonic seconds."""
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
