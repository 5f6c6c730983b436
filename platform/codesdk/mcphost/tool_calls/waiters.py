"""Who waits for which call: one that nobody waits for any more is withdrawn, after a moment in which somebody may."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

from codesdk.domain.ids import ToolCallId
from codesdk.domain.subjects import Subject

GRACE_S = 0.5
"""Seconds from a cancel to the withdrawal, which is to be over in two with all that follows. A client that drops its connection and sends the same call again (Qwen Code
does, on its own time limit) comes within some milliseconds, and must find the call where it was."""

Withdraw = Callable[[ToolCallId, Subject], Awaitable[None]]


class Waiters:
    """Counts the callers of each call; used on one event loop."""

    def __init__(self, withdraw: Withdraw) -> None:
        """`withdraw`: ends a call for which nobody waits."""
        self._withdraw = withdraw
        self._waiting: Counter[ToolCallId] = Counter()
        self._withdrawals: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()

    def join(self, call: ToolCallId) -> None:
        """One more waits."""
        self._waiting[call] += 1

    def leave(self, call: ToolCallId) -> None:
        """One has its answer, or wants it no more."""
        self._waiting[call] -= 1
        if not self._waiting[call]:
            del self._waiting[call]

    def abandon(self, call: ToolCallId, subject: Subject) -> None:
        """A caller that has not left yet wants it no more: unless somebody else does, soon, it is withdrawn."""
        task = asyncio.create_task(self._withdraw_after_grace(call, subject))
        self._withdrawals.add(task)
        task.add_done_callback(self._withdrawals.discard)

    def stop(self) -> None:
        """The process stops: what was cancelled is withdrawn now."""
        self._stopping.set()

    async def settle(self) -> None:
        """Nothing is left to withdraw."""
        while self._withdrawals:
            await asyncio.wait(self._withdrawals)

    async def _withdraw_after_grace(self, call: ToolCallId, subject: Subject) -> None:
        try:
            async with asyncio.timeout(GRACE_S):
                await self._stopping.wait()
        except TimeoutError:
            pass
        if not self._waiting[call]:
            await self._withdraw(call, subject)
