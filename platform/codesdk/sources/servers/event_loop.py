"""An event loop in its own thread."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading

_log = logging.getLogger(__name__)

STOP_TIMEOUT_S = 10.0
"""Seconds for running tasks to handle their cancellation."""


class EventLoopThread:
    """Runs an event loop from construction until `close`."""

    def __init__(self, name: str) -> None:
        """`name`: the thread's name."""
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Cancel all tasks and stop the loop."""
        with contextlib.suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(self._cancel(), self.loop).result(STOP_TIMEOUT_S)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(STOP_TIMEOUT_S)
        if self._thread.is_alive():
            _log.warning("the thread %s did not end", self._thread.name)
            return
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()

    async def _cancel(self) -> None:
        mine = asyncio.current_task()
        left = [task for task in asyncio.all_tasks() if task is not mine]
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=STOP_TIMEOUT_S / 2)
