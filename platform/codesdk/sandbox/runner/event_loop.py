"""The runner's event loop, and threads for blocking work."""

from __future__ import annotations

import _thread
import os
import select
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections import deque
    from queue import SimpleQueue
    from typing import Any, Callable

    OnEvent = Callable[[int, int], object]
else:  # saves memory: `collections` and `queue` load much more
    from _collections import deque
    from _queue import SimpleQueue


class EventLoop:
    """A poll(2) loop: watches descriptors, waits until a deadline, and runs calls posted by other threads."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._handlers: dict[int, OnEvent] = {}
        self._callbacks: deque[Callable[[], None]] = deque()
        self._wake_out, self._wake_in = os.pipe()
        os.set_blocking(self._wake_in, False)
        os.set_blocking(self._wake_out, False)
        self.watch(self._wake_out, select.POLLIN, self._on_wake)

    def watch(self, fd: int, events: int, handler: OnEvent) -> None:
        """Call `handler(fd, events)` when these events occur."""
        self._handlers[fd] = handler
        self._poll.register(fd, events)

    def forget(self, fd: int) -> None:
        """Stop watching a descriptor. Idempotent."""
        if self._handlers.pop(fd, None) is not None:
            self._poll.unregister(fd)

    def post(self, call: Callable[[], None]) -> None:
        """Run a call on the loop. Thread-safe."""
        self._callbacks.append(call)
        try:
            os.write(self._wake_in, b"\0")
        except BlockingIOError:
            pass  # the pipe is full of wake-ups already

    def _on_wake(self, fd: int, _: int) -> None:
        os.read(fd, 4096)
        while self._callbacks:
            self._callbacks.popleft()()

    def run_once(self, deadline: float | None) -> bool:
        """Wait for events until the deadline (monotonic seconds) and handle them. Returns False on timeout."""
        timeout = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000
        found = self._poll.poll(None if timeout is None else int(timeout) + 1)
        for fd, events in found:
            handler = self._handlers.get(fd)
            if handler is not None:  # an earlier handler of this round may have closed it
                handler(fd, events)
        return bool(found)


MAX_WAIT_S = 20.0
"""Longest time that an answer is delayed; below the worker's own timeout."""
MAX_PENDING_ANSWERS = 64


class PendingAnswers:
    """Answers that wait for an event or their deadline. Used on the loop's thread."""

    def __init__(self) -> None:
        self._pending: list[tuple[float, Callable[[], bool], Callable[[], None]]] = []

    def add(self, header: dict[str, Any], is_ready: Callable[[], bool], answer: Callable[[], None]) -> None:
        """Call `answer` once it is ready, after `wait_s` of the request's header at the latest."""
        seconds = min(float(header.get("wait_s", 0.0)), MAX_WAIT_S)
        if seconds <= 0 or is_ready() or len(self._pending) >= MAX_PENDING_ANSWERS:
            answer()
        else:
            self._pending.append((time.monotonic() + seconds, is_ready, answer))

    def clear(self) -> None:
        """Drop all answers."""
        self._pending.clear()

    def next_deadline(self) -> float | None:
        """Return the earliest deadline, on the monotonic clock."""
        return min((deadline for deadline, _, _ in self._pending), default=None)

    def tick(self) -> None:
        """Send the answers that are ready or due."""
        if not self._pending:
            return
        now = time.monotonic()
        due = [wait for wait in self._pending if wait[0] <= now or wait[1]()]
        self._pending = [wait for wait in self._pending if wait not in due]
        for _, _, answer in due:
            answer()


class SerialExecutor:
    """Runs jobs in order on one thread and posts each outcome to the loop."""

    def __init__(self, name: str, loop: EventLoop, prepare: Callable[[], None]) -> None:
        self.loop = loop
        self._queue: SimpleQueue[Callable[[], Callable[[], None]]] = SimpleQueue()
        self._failed: BaseException | None = None
        self._ready = _thread.allocate_lock()
        self._ready.acquire()
        self._name = name
        _thread.start_new_thread(self._run, (prepare,))
        self._ready.acquire()
        if self._failed is not None:
            raise self._failed

    def _run(self, prepare: Callable[[], None]) -> None:
        try:
            prepare()
        except OSError as error:
            self._failed = error
            return
        finally:
            self._ready.release()
        while True:
            self.loop.post(self._queue.get()())

    def submit(self, work: Callable[[], Callable[[], None]]) -> None:
        """Run `work` on the thread, then call its result on the loop. `work` must not raise."""
        self._queue.put(work)
