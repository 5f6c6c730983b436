"""Downloads: the `Range` header of RFC 9110, limited to one range, and a response that is streamed from a thread."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import anyio
from anyio import to_thread
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from codesdk.errors import Fault

_log = logging.getLogger(__name__)

SEND_TIMEOUT_S = 60.0
"""Maximum seconds for one write. A reader that accepts nothing for longer is disconnected."""
_SINGLE_RANGE = re.compile(r"bytes=[ \t]*([0-9]{0,19})-([0-9]{0,19})[ \t]*", re.ASCII | re.IGNORECASE)


class ByteRange(NamedTuple):
    """A range of bytes."""

    start: int
    length: int


class Unsatisfiable(NamedTuple):
    """The range starts past the end."""


def parse_range(header: str | None, size: int) -> ByteRange | Unsatisfiable | None:
    """Return the requested part of `size` bytes; None: all of them.

    Other units, multiple ranges and invalid headers are ignored, as the RFC specifies.
    """
    found = _SINGLE_RANGE.fullmatch(header or "")
    if found is None or found.group(1) == found.group(2) == "":
        return None
    first, last = found.groups()
    if not first:  # a suffix range: the last N bytes
        length = min(int(last), size)
        return ByteRange(size - length, length) if length else Unsatisfiable()
    start = int(first)
    if last and int(last) < start:
        return None
    if start >= size:
        return Unsatisfiable()
    end = min(int(last), size - 1) if last else size - 1
    return ByteRange(start, end - start + 1)


class Download(Response):
    """Sends `first`, then `pieces`, and aborts if the bytes turn out to be damaged.

    The length is announced, so clients can detect an aborted download.
    """

    def __init__(self, first: bytes, pieces: Iterator[bytes], status: int, headers: Mapping[str, str]) -> None:
        self.status_code = status
        self.background = None
        self._first = first
        self._pieces = pieces
        self.init_headers(headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send all pieces, or abort."""
        del scope, receive
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        piece = self._first
        try:
            while piece:
                with anyio.fail_after(SEND_TIMEOUT_S):
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
                piece = await to_thread.run_sync(next, self._pieces, b"")
        except (Fault, TimeoutError) as fault:
            # The status is sent already. Without a final message, the server closes the connection before the announced
            # length.
            _log.warning("a download was aborted: %s", fault or "the reader accepts nothing")
            return
        await send({"type": "http.response.body", "body": b"", "more_body": False})
