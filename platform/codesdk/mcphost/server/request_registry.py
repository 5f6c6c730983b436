"""Requests that are being answered, streams above all: each ends when its credential is good no more.

A credential is looked at when a request comes. A stream may stay for days after that, so it is looked at again.
"""

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
"""Seconds between two looks: how long a stream may outlive its credential."""
CLOSE_TIMEOUT_S = 5.0
"""Seconds in which a client must take the end of its stream; then its connection is closed."""


class RequestCredential(NamedTuple):
    """What a request was let in by, and where."""

    credential: str
    named: str | None
    session: str
    brief: bool = False
    """Whether its answer has an end of its own, as a call's has and a standing stream's has not."""


class OpenRequest:
    """One request, from the moment that it was let in."""

    def __init__(self, send: Send) -> None:
        self.scope = CancelScope()
        self.ended = False
        """Whether it was ended from here."""
        self.begun = False
        """Whether the client has a status."""
        self._complete = False
        self._send = send

    async def send(self, message: Message) -> None:
        """Pass on."""
        self.begun = True
        self._complete = message["type"] == "http.response.body" and not message.get("more_body", False)
        await self._send(message)

    async def finish(self) -> None:
        """End what was begun, as a stream ends that has nothing more to say."""
        if self.begun and not self._complete:
            with move_on_after(CLOSE_TIMEOUT_S):
                await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    def end(self) -> None:
        """Answer no more."""
        self.ended = True
        self.scope.cancel()


class RequestRegistry:
    """Those of one process. Used on one event loop."""

    def __init__(self, is_good: Callable[[RequestCredential], Awaitable[bool]]) -> None:
        """`is_good`: whether a request would be let in to the same session now."""
        self._is_good = is_good
        self._open: dict[RequestCredential, set[OpenRequest]] = {}
        self._failing: set[str] = set()
        """What stood in the way of the last look, by its code: it is told when it begins and when it is over."""

    @contextmanager
    def answering(self, admitted: RequestCredential, send: Send) -> Iterator[OpenRequest]:
        """While the block lasts, which ends early where the credential does."""
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
        """Look again and again, until cancelled."""
        while True:
            await asyncio.sleep(RECHECK_S)
            await self.look()

    async def look(self) -> None:
        """End what nobody would be let in for now. What cannot be looked at stays, and is looked at again."""
        failures: dict[str, list[Exception]] = {}
        for admitted in list(self._open):
            try:
                is_valid = await self._is_good(admitted)
            except Exception as error:  # noqa: BLE001 (what cannot be looked at now is looked at again)
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
                "%d credentials of open streams cannot be looked at again; the streams stay, and it is tried every %.0f s: %s",
                len(failures[code]),
                RECHECK_S,
                first,
                exc_info=None if isinstance(first, Fault) else first,
            )
        for code in self._failing - failures.keys():
            _log.info("nothing is in the way of looking at credentials any more: %s is over", code)
        self._failing = set(failures)


def _cause(error: Exception) -> str:
    """What tells one cause from another: a fault's code, else the class."""
    return error.code if isinstance(error, Fault) else type(error).__name__
