"""One caller at a time for each exec; how long one waits for an engine that is away; and what a cancel meets there."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

from codesdk.sandbox.faults import CallWithdrawn, EngineUnavailable
from codesdk.sandbox.link import Key

ENGINE_AWAY_S = 60.0
"""How long an exec under way waits for an engine that is away; dockerd takes 2 s to stop and start here."""
_AGAIN_S = 0.25


class Turn:
    """What the callers of one exec share: whether it may run, and whether it is not to begin any more."""

    def __init__(self, key: Key) -> None:
        self.caller = threading.Lock()
        """Held by the one whose turn it is."""
        self.callers = 0
        self._key = key
        self._guard = threading.Lock()
        self._may_run = False
        self._withdrawn = threading.Event()

    def go(self) -> None:
        """It is asked for now, or was by an earlier worker: from here on it may run.

        Raises:
            CallWithdrawn: it was withdrawn before.
        """
        with self._guard:
            if self._withdrawn.is_set():
                raise CallWithdrawn(*self._key)
            self._may_run = True

    def stay(self) -> None:
        """The runner has said that it does not run."""
        with self._guard:
            self._may_run = False

    def withdraw(self) -> bool:
        """Have it not begin. False: it may run, and only its runner can end it."""
        with self._guard:
            if not self._may_run:
                self._withdrawn.set()
            return not self._may_run

    def pause(self, seconds: float) -> None:
        """Wait for so long.

        Raises:
            CallWithdrawn: it was withdrawn, before or meanwhile.
        """
        if self._withdrawn.wait(seconds):
            raise CallWithdrawn(*self._key)


class Turns:
    """A second caller of an exec waits, and is then answered from what the runner has stored."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._turns: dict[Key, Turn] = {}

    @contextlib.contextmanager
    def of(self, key: Key) -> Iterator[Turn]:
        """This caller's turn."""
        with self._lock:
            turn = self._turns.setdefault(key, Turn(key))
            turn.callers += 1
        try:
            with turn.caller:
                yield turn
        finally:
            with self._lock:
                turn.callers -= 1
                if not turn.callers:
                    del self._turns[key]

    def withdraw(self, key: Key) -> bool:
        """Have an exec that waits here to be asked for not begin. False: none does."""
        with self._lock:
            turn = self._turns.get(key)
        return turn is not None and turn.withdraw()


class Away:
    """An engine that is being restarted, perhaps. An exec may live on meanwhile, and its runner keeps the output."""

    def __init__(self, deadline: float, turn: Turn) -> None:
        """Deadline: of the exec, on the monotonic clock; `turn`: its caller's."""
        self._deadline = deadline
        self._turn = turn
        self._until: float | None = None

    def wait(self, fault: EngineUnavailable) -> None:
        """Wait a moment.

        Raises:
            EngineUnavailable: it has been away for too long.
            CallWithdrawn: it was never asked for, and is not to be any more.
        """
        now = time.monotonic()
        if self._until is None:
            self._until = min(self._deadline, now + ENGINE_AWAY_S)
        if now >= self._until:
            raise fault
        self._turn.pause(_AGAIN_S)

    def over(self) -> None:
        """It answers again."""
        self._until = None
