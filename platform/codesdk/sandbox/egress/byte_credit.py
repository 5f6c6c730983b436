"""What one connection may move before it must ask again: taken ahead in steps, so that not each block is a commit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from codesdk.sandbox.egress.connection_attempt import ConnectionAttempt

ReserveBytes = Callable[[ConnectionAttempt, int], int]
"""Called from the recorder's thread with a connection as it is now, and the bytes that it lacks at least.

Returns how many more it may move. Raises `Refusal` where it may not: it is ended, for that reason.
"""


def unlimited(_attempt: ConnectionAttempt, least: int) -> int:
    """Nobody counts: it is never short again."""
    return max(least, 1 << 62)


class ByteCredit:
    """Of one connection, for both directions. Used on the proxy's loop alone."""

    def __init__(self, reserve: Callable[[int], Awaitable[int]]) -> None:
        """`reserve`: awaited with how many bytes are lacking at least; returns as many or more, or raises."""
        self._reserve = reserve
        self._left = 0
        self._asking = asyncio.Lock()

    async def spend(self, count: int) -> None:
        """Take so many bytes off, before they pass.

        Raises:
            Refusal: there are no more to be had.
        """
        if self._left < count:
            # One direction asks at a time: both at once would take two steps where one does.
            async with self._asking:
                while (lacking := count - self._left) > 0:
                    self._left += await self._reserve(lacking)
                self._left -= count
            return
        self._left -= count
