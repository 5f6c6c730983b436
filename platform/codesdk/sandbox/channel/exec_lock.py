"""One caller at a time for each exec; how long one waits for an engine that is away; and what a cancel meets there."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

from codesdk.sandbox.channel.connection import Key
from codesdk.sandbox.port.faults import CallCancelled, EngineUnavailable

ENGINE_OUTAGE_S = 60.0
"""How long an exec under way waits for an engine that is away; dockerd takes 2 s to stop and start here."""
_RETRY_S = 0.25


class ExecLock:
    """What the callers of one exec share: whether it may run, and whether it is not to begin any more."""

    def __init__(self, key: Key) -> None:
        self.mutex = threading.Lock()
        """Held by the one whose turn it is."""
        self.users = 0
        self._key = key
        self._guard = threading.Lock()
        self._is_started = False
        self._cancelled = threading.Event()

    def mark_started(self) -> None:
        """It is asked for now, or was by an earlier worker: from here on it may run.

        Raises:
            CallWithdrawn: it was withdrawn before.
        """
        with self._guard:
            if self._cancelled.is_set():
                raise CallCancelled(*self._key)
            self._is_started = True

    def mark_not_started(self) -> None:
        """The runner has said that it does not run."""
        with self._guard:
            self._is_started = False

    def cancel_before_start(self) -> bool:
        """Have it not begin. False: it may run, and only its runner can end it."""
        with self._guard:
            if not self._is_started:
                self._cancelled.set()
            return not self._is_started

    def pause(self, seconds: float) -> None:
        """Wait for so long.

        Raises:
            CallWithdrawn: it was withdrawn, before or meanwhile.
        """
        if self._cancelled.wait(seconds):
            raise CallCancelled(*self._key)


class ExecLocks:
    """A second caller of an exec waits, and is then answered from what the runner has stored."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._exec_locks: dict[Key, ExecLock] = {}

    @contextlib.contextmanager
    def acquire(self, key: Key) -> Iterator[ExecLock]:
        """This caller's turn."""
        with self._lock:
            exec_lock = self._exec_locks.setdefault(key, ExecLock(key))
            exec_lock.users += 1
        try:
            with exec_lock.mutex:
                yield exec_lock
        finally:
            with self._lock:
                exec_lock.users -= 1
                if not exec_lock.users:
                    del self._exec_locks[key]

    def cancel_before_start(self, key: Key) -> bool:
        """Have an exec that waits here to be asked for not begin. False: none does."""
        with self._lock:
            exec_lock = self._exec_locks.get(key)
        return exec_lock is not None and exec_lock.cancel_before_start()


class EngineOutage:
    """An engine that is being restarted, perhaps. An exec may live on meanwhile, and its runner keeps the output."""

    def __init__(self, deadline: float, exec_lock: ExecLock) -> None:
        """Deadline: of the exec, on the monotonic clock; `exec_lock`: its caller's."""
        self._deadline = deadline
        self._exec_lock = exec_lock
        self._until: float | None = None

    def wait(self, fault: EngineUnavailable) -> None:
        """Wait a moment.

        Raises:
            EngineUnavailable: it has been away for too long.
            CallWithdrawn: it was never asked for, and is not to be any more.
        """
        now = time.monotonic()
        if self._until is None:
            self._until = min(self._deadline, now + ENGINE_OUTAGE_S)
        if now >= self._until:
            raise fault
        self._exec_lock.pause(_RETRY_S)

    def over(self) -> None:
        """It answers again."""
        self._until = None
