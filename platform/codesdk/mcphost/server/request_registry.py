"""Open requests, mostly streams. Their credentials are rechecked periodically, and a request ends when its credential does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from anyio import CancelScope, move_on_after
from starlette.types import Message, Send

from codesdk.errors import Fault

_log = logging.getLogger(__name__)

RECHECK_S = 15.0
"""Seconds between checks: how long a stream may outlive its credential."""
CLOSE_TIMEOUT_S = 5.0
"""Seconds for a client to read the end of its stream before its connection is closed."""


class RequestCredential(NamedTuple):
    """A request's credential, and the session it was authenticated for."""

    credential: str
    named: str | None
    session: str
    brief: bool = False
    """Whether the answer ends by itself, as a call's does. A standing stream's doesn't."""


class OpenRequest:
    """One authenticated request."""

    def __init__(self, send: Send) -> None:
        self.scope = CancelScope()
        self.ended = False
        """Whether the registry ended it."""
        self.begun = False
        """Whether the response has started."""
        self._complete = False
        self._send = send

    async def send(self, message: Message) -> None:
        """Forward a message to the client."""
        self.begun = True
        self._complete = message["type"] == "http.response.body" and not message.get("more_body", False)
        await self._send(message)

    async def finish(self) -> None:
        """Send the end of a response that has started."""
        if self.begun and not self._complete:
            with move_on_after(CLOSE_TIMEOUT_S):
                await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    def end(self) -> None:
        """Cancel the request."""
        self.ended = True
        self.scope.cancel()


class RequestRegistry:
    """All open requests of a process. Used on one event loop."""

    def __init__(self, is_good: Callable[[RequestCredential], Awaitable[bool]]) -> None:
        """`is_good`: whether the credential still grants the same session."""
        self._is_good = is_good
        self._open: dict[RequestCredential, set[OpenRequest]] = {}
        self._failing: set[str] = set()
        """Codes of the failures of the last check, so that each is logged when it begins and when it ends."""

    @contextmanager
    def answering(self, admitted: RequestCredential, send: Send) -> Iterator[OpenRequest]:
        """Register a request for the block, which is cancelled when its credential ends."""
        request = OpenRequest(send)
        requests = self._open.setdefault(admitted, set())
        requests.add(request)
        try:
            with request.scope:
                yield request
        finally:
            requests.discard(request)
            if not requests and self._open.get(admitted) is requests:
                del self._open[admitted]

    async def watch(self) -> None:
        """Check periodically until cancelled."""
        while True:
            await asyncio.sleep(RECHECK_S)
            await self.look()

    async def look(self) -> None:
        """End requests whose credential is no longer valid. A check that fails leaves its requests open."""
        failures: dict[str, list[Exception]] = {}
        for admitted in list(self._open):
            try:
                is_valid = await self._is_good(admitted)
            except Exception as error:  # noqa: BLE001 (checked again the next time)
                failures.setdefault(_cause(error), []).append(error)
                continue
            if not is_valid:
                for request in list(self._open.get(admitted, ())):
                    request.end()
        self._log_failures(failures)

    def _log_failures(self, failures: dict[str, list[Exception]]) -> None:
        for code in failures.keys() - self._failing:
            first = failures[code][0]
            _log.warning(
                "cannot recheck %d credentials of open streams; the streams stay open, retrying every %.0f s: %s",
                len(failures[code]),
                RECHECK_S,
                first,
                exc_info=None if isinstance(first, Fault) else first,
            )
        for code in self._failing - failures.keys():
            _log.info("credentials of open streams can be rechecked again: %s is over", code)
        self._failing = set(failures)


def _cause(error: Exception) -> str:
    """Groups failures: by a fault's code, otherwise by class."""
    return error.code if isinstance(error, Fault) else type(error).__name__
