"""Hears of the ends of calls: most calls last some milliseconds, and need no log followed for them."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable

from codesdk.domain.ids import ToolCallId
from codesdk.errors import Fault
from codesdk.eventlog.hints import Hints
from codesdk.toolcalls.records.call_record import Outcome

_log = logging.getLogger(__name__)

MAX_RECENT = 1024
"""Ended calls that are remembered for those who are just about to wait for them."""

ReadOutcome = Callable[[], Outcome]
"""How the call stands, from its row."""


class _Waiter:
    def __init__(self, read: ReadOutcome) -> None:
        self._read = read
        self._loop = asyncio.get_running_loop()
        self.end: asyncio.Future[Outcome | None] = self._loop.create_future()

    def tell(self) -> None:
        """Read the end on this thread: one hop between threads less for every call."""
        found: Outcome | None = None
        try:
            found = self._read()
        except Fault as fault:  # the database went away just now; who waits looks for itself
            _log.info("the end of a call is read again: %s", fault)
        try:
            self._loop.call_soon_threadsafe(self._settle, found)
        except RuntimeError:
            _log.debug("nobody waits for a call any more: the event loop is closed")

    def _settle(self, found: Outcome | None) -> None:
        if not self.end.done():
            self.end.set_result(found)


class CompletionNotifier:
    """Wakes whoever waits for a call when its end is hinted at. A hint may be lost: see `wait`."""

    def __init__(self, hints: Hints) -> None:
        self._hints = hints
        self._guard = threading.Lock()
        self._listening = False
        self._waiters: dict[ToolCallId, list[_Waiter]] = {}
        self._recent: dict[ToolCallId, None] = {}

    def listen(self) -> None:
        """Hear of ends from now on; to be called before the first call is made. A process that waits for none needs it not."""
        with self._guard:
            if self._listening:
                return
            self._listening = True
        self._hints.listen_for_call_ends(self._on_end)

    async def wait(self, call: ToolCallId, read: ReadOutcome, within_s: float) -> Outcome | None:
        """What `read` says once the call is said to have ended, on the event loop that asks.

        None: nothing was heard in `within_s` seconds, or it could not be read. It may have ended all the same.
        """
        waiter = _Waiter(read)
        with self._guard:
            has_ended = call in self._recent
            if not has_ended:
                self._waiters.setdefault(call, []).append(waiter)
        try:
            if has_ended:
                await asyncio.to_thread(waiter.tell)
            async with asyncio.timeout(within_s):
                return await waiter.end
        except TimeoutError:
            return None
        finally:
            with self._guard:
                remaining = [each for each in self._waiters.pop(call, []) if each is not waiter]
                if remaining:
                    self._waiters[call] = remaining

    def _on_end(self, call: ToolCallId) -> None:
        with self._guard:
            self._recent[call] = None
            while len(self._recent) > MAX_RECENT:
                del self._recent[next(iter(self._recent))]
            waiters = self._waiters.pop(call, [])
        for waiter in waiters:
            waiter.tell()
