"""Reconciles a host's sandboxes with their rows, in small batches on several threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from contextlib import contextmanager
from enum import Enum, auto

from codesdk.sandbox.records import store
from codesdk.sandbox.records.store import SandboxRow, SandboxState
from codesdk.storage.database import Database
from codesdk.worker.ownership.registration import OwnedHost

MAX_REMOVALS = 4
"""Sandboxes that one pass removes. With a pass at every poll, more than an engine can do."""
REMOVAL_PASSES = 4
"""Passes that may remove at once. One fewer than the threads, so one is always free to open sandboxes."""
_TO_OPEN = (SandboxState.WANTED, SandboxState.STARTING)
_TO_END = (SandboxState.CLOSING, SandboxState.STOPPING, SandboxState.HALTING)


class RemovalProgress(Enum):
    """The outcome of stopping or removing a sandbox."""

    DONE = auto()
    DEFERRED = auto()
    """Not due yet."""
    FAILED = auto()
    """The engine failed, perhaps slowly."""


class Reconciler:
    """Thread-safe."""

    def __init__(
        self,
        *,
        host: OwnedHost,
        database: Database,
        guards: MutableMapping[str, threading.RLock],
        start: Callable[[SandboxRow], object],
        end: Callable[[SandboxRow], RemovalProgress],
    ) -> None:
        """`guards`: one lock per session, held while `start` or `end` runs for its row."""
        self._host = host
        self._database = database
        self._guards = guards
        self._start = start
        self._end = end
        self._lock = threading.Lock()
        self._at_work: set[str] = set()
        self._failed: set[str] = set()
        """Sandboxes whose last removal failed."""
        self._removal_slots = threading.Semaphore(REMOVAL_PASSES)
        self._retry_lock = threading.Lock()

    def reconcile(self) -> None:
        """Open wanted sandboxes; stop or remove those that are due."""
        with self._database.read() as connection:
            rows = store.on_host(connection, self._host.id, (*_TO_OPEN, *_TO_END))
        # Open first, and remove few per pass: callers wait for openings, which must not queue behind hundreds of removals.
        for row in rows:
            if row.state in _TO_OPEN:
                with self._exclusive(row) as is_ours:
                    if is_ours:
                        self._start(row)
        if not self._removal_slots.acquire(blocking=False):
            return
        try:
            self._end_some([row for row in rows if row.state in _TO_END])
        finally:
            self._removal_slots.release()

    def _end_some(self, rows: list[SandboxRow]) -> None:
        with self._lock:
            self._failed &= {row.id for row in rows}
            failed_before = set(self._failed)
        self._end_each(row for row in rows if row.id not in failed_before)
        # Retries come last and on one thread: each may take 30 s to fail again.
        if failed_before and self._retry_lock.acquire(blocking=False):
            try:
                self._end_each(row for row in rows if row.id in failed_before)
            finally:
                self._retry_lock.release()

    def _end_each(self, rows: Iterable[SandboxRow]) -> None:
        done = 0
        for row in rows:
            with self._exclusive(row) as is_ours:
                if is_ours:
                    done += self._end_one(row)
            if done == MAX_REMOVALS:
                return

    def _end_one(self, row: SandboxRow) -> bool:
        progress = self._end(row)
        with self._lock:
            if progress is RemovalProgress.FAILED:
                self._failed.add(row.id)
            else:
                self._failed.discard(row.id)
        return progress is RemovalProgress.DONE

    @contextmanager
    def _exclusive(self, row: SandboxRow) -> Iterator[bool]:
        """Try to reserve the row for this thread. False: another thread has it."""
        with self._lock:
            is_ours = row.id not in self._at_work
            if is_ours:
                self._at_work.add(row.id)
        if not is_ours:
            yield False  # another thread works on this row
            return
        guard = self._guards[row.session_id]
        try:
            if not guard.acquire(blocking=False):
                yield False  # a call is opening it already
                return
            try:
                yield True
            finally:
                guard.release()
        finally:
            with self._lock:
                self._at_work.discard(row.id)
