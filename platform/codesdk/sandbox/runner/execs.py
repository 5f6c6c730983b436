"""All execs of a sandbox, and the shepherds that wait for the next ones."""

from __future__ import annotations

import os
import time

from codesdk.sandbox.runner import probe
from codesdk.sandbox.runner.loop import Loop
from codesdk.sandbox.runner.running import Exec, Key, Seat
from codesdk.sandbox.runner.shepherd import NOBODY, Nursery
from codesdk.sandbox.runner.spool import Budget, Flow, Spool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from codesdk.sandbox.runner.running import SignalTree

MAX_RUNNING = 24
"""Each running exec has a shepherd, and these need their place beneath the pids limit (see `spec.RESERVED_PIDS`)."""
MAX_FREE = 2
"""Shepherds kept for the next execs."""
KEEP_FREE_S = 20.0
"""After this without execs they are let go, and the nursery with them: they are half of an idle sandbox's memory."""
_SMALL = 256 * 1024
"""Output that may be held when the nursery is let go. The next one shares its pages, and so would keep them."""


class Execs:
    """All execs of the sandbox, by (call, attempt)."""

    REMEMBERED = 16_384
    """Acknowledged execs whose keys are kept, so that a repeated start is refused and not run."""

    def __init__(self, loop: Loop, nursery: Nursery, kill: SignalTree, spool_bytes: int, uid: int) -> None:
        self._uid = uid
        self._loop = loop
        self._nursery = nursery
        self._kill = kill
        self._budget = Budget(spool_bytes)
        self._oom = probe.OomKills()
        self._known: dict[Key, Exec] = {}
        self._running: dict[Key, Exec] = {}
        self._done: dict[Key, None] = {}
        self._free: list[Seat] = []
        self._opening = -1
        self._is_tidy = True
        """No process of an ended exec can be left: none has lost its shepherd, none had strays that outlived a hunt."""
        self._used = time.monotonic()

    def get(self, key: Key) -> Exec | None:
        """The exec, running or ended, until it is acknowledged."""
        return self._known.get(key)

    def was_acknowledged(self, key: Key) -> bool:
        """It ran, ended, and its result was committed."""
        return key in self._done

    def running(self) -> list[Key]:
        """Those that have not ended."""
        return list(self._running)

    def full(self) -> bool:
        """No more execs can run now."""
        return len(self._running) >= MAX_RUNNING

    def start(self, key: Key, request: dict[str, Any], stdin: bytes, keep: int) -> Exec:
        """Start it. The caller has checked that the key is new and that there is room."""
        seat = self._take_seat()
        spool = (Flow if request.get("flow") else Spool)(keep, self._budget)
        # A shepherd that took limits on for one exec cannot be rid of them for the next.
        freed = Seat.dismiss if "limits" in request else self._freed
        found = Exec(key, request, stdin, self._loop, self._kill, spool, self._ended, freed, self._oom, self._uid)
        for other in self._running.values():
            other.overlap()
            found.overlap()
        try:
            found.run(seat, self._window(request))
        except OSError:
            freed(seat)
            raise
        self._known[key] = self._running[key] = found
        return found

    def _window(self, request: dict[str, Any]) -> list[int]:
        """Sets `alone` where no tool process lives, and keeps others waiting until that one has been started.

        A shepherd that starts a tool alone has the tool's real uid meanwhile (see `spawning`), and holds one end of a
        pipe until it is root again. Every later one gets the other end, and begins when it is at its end.
        """
        if not self._running and self._is_tidy:
            if self._opening >= 0:
                os.close(self._opening)
            self._opening, theirs = os.pipe()
            request["alone"] = True
            return [theirs]
        return [os.dup(self._opening)] if self._opening >= 0 else []

    def _take_seat(self) -> Seat:
        self._used = time.monotonic()
        while self._free:
            seat = self._free.pop()
            if seat.is_fresh():
                return seat
            seat.dismiss()  # the kernel killed it for memory while it waited
        return Seat(self._nursery)

    def _ended(self, key: Key, may_live_on: bool) -> None:
        self._is_tidy = self._is_tidy and not may_live_on
        self._running.pop(key, None)
        self._used = time.monotonic()

    def _freed(self, seat: Seat) -> None:
        if len(self._free) < MAX_FREE:
            self._free.append(seat)
        else:
            seat.dismiss()

    def prepare(self) -> None:
        """Have a shepherd ready for the first exec.

        Raises:
            OSError: no process to be had.
        """
        if not self._free and not self._running:
            self._used = time.monotonic()
            self._free.append(Seat(self._nursery))

    def acknowledge(self, key: Key) -> bool:
        """Forget an ended exec; False when it is unknown or still runs."""
        found = self._known.get(key)
        if found is None or found.result is None:
            return key in self._done
        found.spool.release()
        del self._known[key]
        self._done[key] = None
        while len(self._done) > self.REMEMBERED:
            del self._done[next(iter(self._done))]
        return True

    def next_deadline(self) -> float | None:
        """When `tick` has something to do, on the monotonic clock."""
        times = [item.deadline for item in self._running.values() if item.deadline is not None]
        if self._can_rest():
            times.append(self._used + KEEP_FREE_S)
        return min(times) if times else None

    def _can_rest(self) -> bool:
        is_up = bool(self._free) or self._nursery.pid != NOBODY
        return is_up and not self._running and self._budget.used <= _SMALL

    def tick(self) -> None:
        """Do what is due."""
        now = time.monotonic()
        if self._can_rest() and now - self._used >= KEEP_FREE_S:
            for seat in self._free:
                seat.dismiss()
            self._free.clear()
            self._nursery.rest()
        for item in list(self._running.values()):
            if item.deadline is not None and item.deadline <= now:
                item.on_deadline()

    def passes(self) -> list[tuple[int, str, int, str]]:
        """The running execs that may use egress: shepherd, call, attempt, credential."""
        return [
            (item.shepherd, key[0], key[1], item.credential)
            for key, item in self._running.items()
            if item.credential and item.shepherd is not None
        ]

    def states(self) -> list[dict[str, Any]]:
        """Every exec that is not acknowledged."""
        return [item.state() for item in self._known.values()]
