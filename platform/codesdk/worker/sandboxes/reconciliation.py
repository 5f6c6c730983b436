"""Brings the sandboxes of a host to what their rows say, a few at a time and several threads at once."""

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
"""Sandboxes that one pass removes. With passes at every poll this is more than an engine manages."""
REMOVAL_PASSES = 4
"""Passes that remove at once, one fewer than the threads which make passes: an opening never waits for removals alone."""
_TO_OPEN = (SandboxState.WANTED, SandboxState.STARTING)
_TO_END = (SandboxState.CLOSING, SandboxState.STOPPING, SandboxState.HALTING)


class RemovalProgress(Enum):
    """What came of ending a sandbox."""

    DONE = auto()
    DEFERRED = auto()
    """It is not time; that took no time to find out."""
    FAILED = auto()
    """The engine did not do it, and may have taken long over that."""


class Reconciler:
    """Safe to use from the worker's threads."""

    def __init__(
        self,
        *,
        host: OwnedHost,
        database: Database,
        guards: MutableMapping[str, threading.RLock],
        start: Callable[[SandboxRow], object],
        end: Callable[[SandboxRow], RemovalProgress],
    ) -> None:
        """`guards`: of the sessions; held while `start` or `end` is called of one's row."""
        self._host = host
        self._database = database
        self._guards = guards
        self._start = start
        self._end = end
        self._lock = threading.Lock()
        self._at_work: set[str] = set()
        self._failed: set[str] = set()
        """Sandboxes that could not be ended when it was tried last."""
        self._removal_slots = threading.Semaphore(REMOVAL_PASSES)
        self._retry_lock = threading.Lock()

    def reconcile(self) -> None:
        """Make what is wanted, end what is closing or to be stopped."""
        with self._database.read() as connection:
            rows = store.on_host(connection, self._host.id, (*_TO_OPEN, *_TO_END))
        # Opening first, and few removals a pass: somebody waits for the one, and hundreds of the other must not stand
        # before it. The next poll goes on.
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
        # Those that failed come last and on one thread: each may take half a minute to fail again.
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
        """Whether the row is this thread's while the block lasts."""
        with self._lock:
            is_ours = row.id not in self._at_work
            if is_ours:
                self._at_work.add(row.id)
        if not is_ours:
            yield False  # another thread's: two on the same row would do the work of one
            return
        guard = self._guards[row.session_id]
        try:
            if not guard.acquire(blocking=False):
                yield False  # a call is just opening it, and needs no help; this thread has others to see to
                return
            try:
                yield True
            finally:
                guard.release()
        finally:
            with self._lock:
                self._at_work.discard(row.id)
