"""One caller at a time for each exec, and how long one waits for an engine that is away."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

from codesdk.sandbox.faults import EngineUnavailable
from codesdk.sandbox.link import Key

ENGINE_AWAY_S = 60.0
"""How long an exec under way waits for an engine that is away; dockerd takes 2 s to stop and start here."""
_AGAIN_S = 0.25


class Turns:
    """A second caller of an exec waits, and is then answered from what the runner has stored."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._turns: dict[Key, tuple[threading.Lock, int]] = {}

    @contextlib.contextmanager
    def of(self, key: Key) -> Iterator[None]:
        """This caller's turn."""
        with self._lock:
            lock, users = self._turns.get(key, (threading.Lock(), 0))
            self._turns[key] = (lock, users + 1)
        try:
            with lock:
                yield
        finally:
            with self._lock:
                lock, users = self._turns.pop(key)
                if users > 1:
                    self._turns[key] = (lock, users - 1)


class Away:
    """An engine that is being restarted, perhaps. An exec may live on meanwhile, and its runner keeps the output."""

    def __init__(self, deadline: float) -> None:
        """Deadline: of the exec, on the monotonic clock."""
        self._deadline = deadline
        self._until: float | None = None

    def wait(self, fault: EngineUnavailable) -> None:
        """Wait a moment.

        Raises:
            EngineUnavailable: it has been away for too long.
        """
        now = time.monotonic()
        if self._until is None:
            self._until = min(self._deadline, now + ENGINE_AWAY_S)
        if now >= self._until:
            raise fault
        time.sleep(_AGAIN_S)

    def over(self) -> None:
        """It answers again."""
        self._until = None
