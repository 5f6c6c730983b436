"""Downloads: the `Range` header of RFC 9110, limited to one range, and a response that is streamed from a thread."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple
from urllib.parse import quote

import anyio
from anyio import to_thread
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from codesdk.errors import Fault

_log = logging.getLogger(__name__)

SEND_TIMEOUT_S = 60.0
"""Maximum seconds for one write. A reader that accepts nothing for longer is disconnected."""
_MAX_OFFSET = 1 << 52
"""Bytes; no file is larger."""
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


def requested_part(header: str | None) -> dict[str, int]:
    """The range as a part of a file whose size isn't known yet: `offset` and `length`, or `last`. Empty: all of it."""
    found = _SINGLE_RANGE.fullmatch(header or "")
    if found is None or found.group(1) == found.group(2) == "":
        return {}
    first, last = (min(int(text), _MAX_OFFSET) if text else None for text in found.groups())
    if first is None:
        return {"last": last or 0}
    if last is None:
        return {"offset": first}
    return {"offset": first, "length": last - first + 1} if last >= first else {}


def attachment_headers(name: str) -> dict[str, str]:
    """The headers of every download. Content from tools and agents must not run in a browser under this origin."""
    return {
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}",
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "sandbox; default-src 'none'",
        "Accept-Ranges": "bytes",
        "Cache-Control": "private, no-cache",
    }


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
