"""A server's stdout as lines, and lines as messages: all of it hostile input. Pure."""

from __future__ import annotations

import mcp_types as types
from mcp.shared.message import SessionMessage

MAX_LINE = 4 * 1024 * 1024
"""Bytes of one message: as much as the largest file that a built-in tool reads."""
MAX_NON_MESSAGES = 200
"""Lines that are no message, of one server: some print a greeting to stdout; one that goes on is ended."""


class ServerMisbehaved(Exception):
    """What comes from the server cannot be borne any more; the text says why, after "the server"."""


class LineBuffer:
    """Cuts bytes into lines, holding at most one unfinished."""

    def __init__(self, limit: int = MAX_LINE) -> None:
        self._limit = limit
        self._partial = bytearray()
        self._searched = 0

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that these bytes end.

        Raises:
            Unbearable: a line is longer than the limit.
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
    """The message, or None where the line is none: no UTF-8, no JSON, nested too deeply, or another kind of JSON."""
    try:
        return SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError:
        return None
