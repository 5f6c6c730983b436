"""A streaming response fed by a thread. It aborts when the bytes turn out to be damaged."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping

import anyio
from anyio import to_thread
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from codesdk.errors import Fault

_log = logging.getLogger(__name__)

SEND_TIMEOUT_S = 60.0
"""Maximum seconds for one write. A reader that accepts nothing for longer is disconnected."""


class Download(Response):
    """Sends `first`, then `pieces`. The length is announced, so clients can detect an aborted download."""

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
            _log.warning("a download breaks off: %s", fault or "the reader takes nothing")
            return
        await send({"type": "http.response.body", "body": b"", "more_body": False})
