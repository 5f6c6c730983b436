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

_log = logging.getLogger(__name__)

RECHECK_S = 15.0
"""Seconds between two looks: how long a stream may outlive its credential."""
END_S = 5.0
"""Seconds in which a client must take the end of its stream; then its connection is closed."""


class Admitted(NamedTuple):
    """What a request was let in by, and where."""

    credential: str
    named: str | None
    session: str
    brief: bool = False
    """Whether its answer has an end of its own, as a call's has and a standing stream's has not."""


class Answering:
    """One request, from the moment that it was let in."""

    def __init__(self, send: Send) -> None:
        self.scope = CancelScope()
        self.ended = False
        """Whether it was ended from here."""
        self.begun = False
        """Whether the client has a status."""
        self._over = False
        self._send = send

    async def send(self, message: Message) -> None:
        """Pass on."""
        self.begun = True
        self._over = message["type"] == "http.response.body" and not message.get("more_body", False)
        await self._send(message)

    async def finish(self) -> None:
        """End what was begun, as a stream ends that has nothing more to say."""
        if self.begun and not self._over:
            with move_on_after(END_S):
                await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    def end(self) -> None:
        """Answer no more."""
        self.ended = True
        self.scope.cancel()


class Standing:
    """All of one process. Used on one event loop."""

    def __init__(self, is_good: Callable[[Admitted], Awaitable[bool]]) -> None:
        """`is_good`: whether a request would be let in to the same session now."""
        self._is_good = is_good
        self._open: dict[Admitted, set[Answering]] = {}

    @contextmanager
    def answering(self, admitted: Admitted, send: Send) -> Iterator[Answering]:
        """While the block lasts, which ends early where the credential does."""
        one = Answering(send)
        together = self._open.setdefault(admitted, set())
        together.add(one)
        try:
            with one.scope:
                yield one
        finally:
            together.discard(one)
            if not together and self._open.get(admitted) is together:
                del self._open[admitted]

    async def watch(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await asyncio.sleep(RECHECK_S)
            await self.look()

    async def look(self) -> None:
        """End what nobody would be let in for now."""
        for admitted in list(self._open):
            try:
                good = await self._is_good(admitted)
            except Exception:  # noqa: BLE001 (what cannot be looked at now is looked at again)
                _log.warning("a credential could not be looked at again", exc_info=True)
                continue
            if not good:
                for one in list(self._open.get(admitted, ())):
                    one.end()
