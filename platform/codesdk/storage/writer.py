"""The process's one writer: runs units of work as closures and commits them in small groups.

A closure that raises is rolled back alone: the group then runs again, each closure in its own savepoint. Steps that
lock hot rows (a session's counter) run last and in sorted order, so that several processes can't deadlock on them and
hold them only during the commit. External effects (a hint, a wake-up) run after the commit on another thread, so that a
slow listener never delays a commit.

On PostgreSQL several processes write at once, so a unit can hit a conflict: a deadlock, a row that another process
inserted first, data that changed since the unit read it. The unit is then rolled back and runs again. **A closure may
therefore run more than once: it changes nothing but the database before its commit.**
"""

from __future__ import annotations

import fcntl
import logging
import os
import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Generic, TypeVar

from sqlalchemy import Connection, NestedTransaction
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from codesdk.errors import Fault, InternalFault
from codesdk.storage.database import Database
from codesdk.storage.engines import connect
from codesdk.storage.faults import (
    DatabaseLocked,
    StorageUnavailable,
    commit_indeterminate,
    is_conflict,
    is_disconnected,
    is_lock_timeout,
    is_rolled_back,
    is_unresponsive,
    to_fault,
)

T = TypeVar("T")
_log = logging.getLogger(__name__)

MAX_GROUP = 64
"""Maximum units per transaction: enough to share an fsync, few enough that none waits long."""

MAX_ATTEMPTS = 5
"""Maximum runs of a group or unit after a serialisation conflict. Each run reads again, so the second mostly succeeds."""

RETRY_DELAY_S = 0.02
"""Seconds before a group runs again: a deadlock's winner must get the row before the victim locks it again."""


SHORT_LOCK_TIMEOUT_MS = 250
"""Lock timeout for the rest of a group after one unit hit the normal one. Otherwise, if a whole table is locked, each
unit would wait the full time, one after the other.
"""


class WriterClosed(Fault):
    """The process is shutting down."""

    code = "SHUTTING_DOWN"
    retryable = True
    status = 503


Flush = Callable[[Connection, dict[str, list[Any]]], object]
"""Stores what the group's units collected, by key, in key order."""


class Unit:
    """A unit of work: the transaction's connection, steps at its end, and effects after the commit."""

    def __init__(self, connection: Connection, *, guarded: bool = False) -> None:
        """`guarded`: use a savepoint, created with the first statement, because many units only collect."""
        self._connection = connection
        self._guarded = guarded
        self.savepoint: NestedTransaction | None = None
        self.last_steps: list[tuple[str, Callable[[Connection], object]]] = []
        self.urgent: list[Callable[[], None]] = []
        self.effects: list[Callable[[], None]] = []
        self.batches: dict[tuple[Flush, str], list[Any]] = {}

    @property
    def connection(self) -> Connection:
        """The transaction's connection."""
        if self._guarded and self.savepoint is None:
            self.savepoint = self._connection.begin_nested()
        return self._connection

    def batch(self, flush: Flush, key: str) -> list[Any]:
        """Return the unit's list for `key`, empty at first.

        One call of `flush` gets the lists of all units of the group, after their statements and before the other last
        steps.
        """
        return self.batches.setdefault((flush, key), [])

    def at_end(self, key: str, step: Callable[[Connection], object]) -> None:
        """Run `step` at the end of the transaction, ordered by `key` across all units of the group."""
        self.last_steps.append((key, step))

    def after_commit(self, effect: Callable[[], None], *, urgent: bool = False) -> None:
        """Run `effect` once the unit is durable. A crash may lose it, so use it for hints only.

        `urgent`: run before the group's other effects, because a caller waits for it and each takes a round trip.
        """
        (self.urgent if urgent else self.effects).append(effect)


class _Job(Generic[T]):
    def __init__(self, work: Callable[[Unit], T]) -> None:
        self.work = work
        self.done: Future[T] = Future()


class Writer:
    """Runs units of work, one group at a time. Safe to call from any thread, but not from within a unit.

    A caller that finds the writer idle commits at once, on its own thread: in a quiet process, waking another thread
    costs as much as the commit. Units that arrive meanwhile wait for the writer's thread, which commits them as one
    group.
    """

    def __init__(self, database: Database, lock_path: Path | None = None) -> None:
        """Create the writer. `lock_path`: a lock file for the SQLite writers of all processes; fairer than SQLite's."""
        self._database = database
        self._lock_path = lock_path
        self._lock: IO[str] | None = None
        """Open from the first commit on. If the path then names another file, the data directory was replaced."""
        self._jobs: queue.SimpleQueue[_Job[Any]] = queue.SimpleQueue()
        self._commit_lock = threading.Lock()  # held during a commit
        self._wake = threading.Event()
        self._effects: queue.SimpleQueue[list[Callable[[], None]] | None] = queue.SimpleQueue()
        self._closed = False
        self._submit_lock = threading.Lock()  # no unit may be queued after `close`, because no thread would run it
        self._threads = [
            threading.Thread(target=self._writer_loop, name="codesdk-writer", daemon=True),
            threading.Thread(target=self._run_effects, name="codesdk-after-commit", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def run(self, work: Callable[[Unit], T]) -> T:
        """Run `work` and wait until it's durable. If it raises, its changes are rolled back and the error is raised here.

        Raises:
            StorageUnavailable: the transaction was not committed. CommitIndeterminate: it may have been committed.
            WriterClosed: after `close`.
        """
        job: _Job[T] = _Job(work)
        with self._submit_lock:
            if self._closed:
                raise WriterClosed("The writer is closed.", advice="Try again when the service is back.")
            self._jobs.put(job)
        # Not on the main thread: a signal handler's exception is raised there and would fail other callers' units.
        if threading.current_thread() is not threading.main_thread() and self._commit_lock.acquire(blocking=False):
            try:
                self._commit_group()
            finally:
                self._commit_lock.release()
        if not job.done.done() or not self._jobs.empty():
            self._wake.set()
        return job.done.result()

    def close(self) -> None:
        """Finish the submitted units, then stop both threads."""
        with self._submit_lock:
            if self._closed:
                return
            self._closed = True
        self._wake.set()
        self._threads[0].join()
        with self._commit_lock:
            self._effects.put(None)
        self._threads[1].join()
        if self._lock is not None:
            self._lock.close()

    def _writer_loop(self) -> None:
        while not (self._closed and self._jobs.empty()):
            self._wake.wait()
            self._wake.clear()
            with self._commit_lock:
                while self._commit_group():
                    pass

    def _commit_group(self) -> bool:
        """Commit up to `MAX_GROUP` waiting units. False if there were none."""
        jobs: list[_Job[Any]] = []
        while len(jobs) < MAX_GROUP:
            try:
                jobs.append(self._jobs.get_nowait())
            except queue.Empty:
                break
        if jobs:
            self._commit(jobs)
        return bool(jobs)

    def _commit(self, jobs: list[_Job[Any]]) -> None:
        try:
            group = self._commit_with_retry(jobs)
        except BaseException as error:  # noqa: BLE001 (the group failed as one; every caller hears it)
            fault = to_fault(error) if isinstance(error, (DBAPIError, PoolTimeout)) else error
            group = _Group(failed=[(job, fault) for job in jobs])
        for job, value, _ in group.done:
            job.done.set_result(value)
        for job, reason in group.failed:
            job.done.set_exception(reason)
        units = [unit for _, _, unit in group.done]
        effects = [effect for unit in units for effect in unit.urgent]
        effects += [effect for unit in units for effect in unit.effects]
        if effects:
            self._effects.put(effects)

    def _commit_with_retry(self, jobs: list[_Job[Any]]) -> _Group:
        """Commit the group. Retry only if the previous attempt certainly left nothing behind."""
        guarded = False
        stuck: list[tuple[_Job[Any], BaseException]] = []
        for attempts_left in reversed(range(MAX_ATTEMPTS)):
            with self._write_lock(), connect(self._database.writer) as connection:
                transaction = connection.begin()
                sent = False
                try:
                    if stuck:
                        _shorten_lock_timeout(connection)
                    group = _run_group(jobs, connection, guarded=guarded)
                    sent = True
                    transaction.commit()
                except _UnitFailed as failed:
                    transaction.close()
                    guarded = True
                    if is_lock_timeout(failed.reason):  # it waited the full lock timeout, and the others with it
                        stuck.append((failed.job, to_fault(failed.reason)))
                        jobs = [job for job in jobs if job is not failed.job]
                    continue
                except Exception as error:
                    transaction.close()
                    # If the commit was sent and the answer lost, it may have happened: report it as indeterminate.
                    broken = is_disconnected(error) and not sent and not is_unresponsive(error)
                    if attempts_left and (is_conflict(error) or broken):
                        _log.info("running a group of %d units again: %s", len(jobs), error)
                    elif sent and isinstance(error, DBAPIError) and is_disconnected(error):
                        raise commit_indeterminate(error) from error
                    else:
                        raise
                else:
                    group.failed += stuck
                    return group
            threading.Event().wait(RETRY_DELAY_S)
        raise InternalFault("A group of units was neither stored nor refused.")

    @contextmanager
    def _write_lock(self) -> Iterator[None]:
        # Processes that compete for SQLite's lock poll it, and one can starve for seconds. flock queues them.
        if self._lock_path is None:
            yield
            return
        try:
            if self._lock is None:
                self._lock = self._lock_path.open("a")
            found = self._lock_path.stat()
        except OSError as error:
            advice = "Fix the data directory's owner and mode; nothing that was acknowledged is lost."
            raise StorageUnavailable(
                f"The write lock {self._lock_path} cannot be opened: {error}.", advice=advice
            ) from error
        if not os.path.samestat(found, os.fstat(self._lock.fileno())):
            # The open database would keep accepting commits into a file that no process can open again.
            raise StorageUnavailable(
                f"{self._lock_path.parent} is not the data directory that this process was started on.",
                advice="Restart CodeSDK; do not remove its data directory while it runs.",
            )
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    def _run_effects(self) -> None:
        while (effects := self._effects.get()) is not None:
            for effect in effects:
                try:
                    effect()
                except Exception:  # noqa: BLE001 (an effect is any callable)
                    # A lost hint costs latency, never an event: readers and workers also poll.
                    _log.warning("an effect after commit failed; the poll will make up for it", exc_info=True)


class _UnitRolledBack(Exception):
    """One unit was rolled back; the group continues."""

    def __init__(self, reason: Exception) -> None:
        super().__init__()
        self.reason = reason


class _UnitFailed(Exception):
    """One of several units failed without a savepoint; the whole group must run again."""

    def __init__(self, job: _Job[Any], reason: Exception) -> None:
        super().__init__()
        self.job = job
        self.reason = reason


class _Group:
    """The outcomes of a group's units."""

    def __init__(self, failed: list[tuple[_Job[Any], BaseException]] | None = None) -> None:
        self.done: list[tuple[_Job[Any], Any, Unit]] = []
        self.failed = failed or []


def _run_group(jobs: list[_Job[Any]], connection: Connection, *, guarded: bool) -> _Group:
    """Run the units, then their last steps.

    Args:
        jobs: the units.
        connection: the transaction's connection.
        guarded: give each unit a savepoint. The first run goes without, because few units fail.

    Raises:
        _UnitFailed: one of several units failed, unguarded.
        Exception: the only unit failed, or the whole transaction did.
    """
    group = _Group()
    for job in jobs:
        try:
            unit, value = (
                _in_savepoint(job.work, connection)
                if guarded
                else _without_savepoint(job, connection, alone=len(jobs) == 1)
            )
        except _UnitRolledBack as failure:
            group.failed.append((job, failure.reason))
            if isinstance(failure.reason, DatabaseLocked):
                _shorten_lock_timeout(connection)
        else:
            group.done.append((job, value, unit))
    units = [unit for _, _, unit in group.done]
    for flush, lists in _merge_batches(units).items():
        flush(connection, lists)
    steps = [step for unit in units for step in unit.last_steps]
    for _, step in sorted(steps, key=lambda keyed: keyed[0]):
        step(connection)
    return group


def _shorten_lock_timeout(connection: Connection) -> None:
    """Use the short lock timeout for the rest of the transaction, after one unit hit the normal one."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = {SHORT_LOCK_TIMEOUT_MS}")


def _merge_batches(units: list[Unit]) -> dict[Flush, dict[str, list[Any]]]:
    merged: dict[Flush, dict[str, list[Any]]] = {}
    for unit in units:
        for (flush, key), items in unit.batches.items():
            merged.setdefault(flush, {}).setdefault(key, []).extend(items)
    return {flush: dict(sorted(lists.items())) for flush, lists in merged.items()}


def _without_savepoint(job: _Job[T], connection: Connection, *, alone: bool) -> tuple[Unit, T]:
    unit = Unit(connection)
    try:
        return unit, job.work(unit)
    except Exception as error:
        if alone or is_rolled_back(error) or is_disconnected(error):
            raise
        raise _UnitFailed(job, error) from error


def _in_savepoint(work: Callable[[Unit], T], connection: Connection) -> tuple[Unit, T]:
    """Run one unit of a group, so that it can fail alone.

    Raises:
        _UnitRolledBack: it failed and was rolled back.
        Exception: it failed, and the whole transaction with it.
    """
    for attempts_left in reversed(range(MAX_ATTEMPTS)):
        unit = Unit(connection, guarded=True)
        try:
            value = work(unit)
            if unit.savepoint is not None:
                unit.savepoint.commit()
        except Exception as error:
            if is_rolled_back(error) or is_disconnected(error):  # the whole transaction is gone, not only this unit
                raise
            try:
                if unit.savepoint is not None:
                    unit.savepoint.rollback()
            except DBAPIError:
                # SQLite rolls back the whole transaction when the disk is full or fails. Earlier units of the group are
                # lost and later ones would commit without them, so the group must fail as one.
                raise error from None
            if attempts_left and is_conflict(error):
                continue
            raise _UnitRolledBack(to_fault(error) if isinstance(error, DBAPIError) else error) from error
        return unit, value
    raise InternalFault("A unit neither ended nor failed.")
