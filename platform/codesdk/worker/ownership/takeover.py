"""Takeover: replaces a worker that hangs. One worker serves an engine; a second is refused while the first is alive.

A worker that is paused or deadlocked keeps its lock forever. It is killed only if all of this holds: its row names the
process, in the same data directory and pid namespace; that process runs; the database has received no heartbeat for a
lease; and for half a lease more, it neither sends a heartbeat nor touches its liveness file. So a worker whose database
is unavailable or refuses its heartbeats is left alone.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO

from pydantic import ValidationError

from codesdk.domain.model import FrozenModel
from codesdk.hosts import store
from codesdk.hosts.store import HostLease
from codesdk.provision.system.process_identity import ProcessIdentity, mark, pid_namespace
from codesdk.storage.database import Database
from codesdk.worker.ownership.registration import WorkerRunning, lock_engine

_log = logging.getLogger(__name__)

CHECKS = 12
"""Checks during the half lease in which the other worker must stay silent."""
KILL_TIMEOUT_S = 30.0
"""Seconds that the kernel has to end a killed process and release its lock."""
POLL_S = 0.05
SILENT_S = 30.0
"""Seconds after which a worker counts as silent without a lease: six heartbeats."""


class Holder(FrozenModel):
    """A worker's process. Its pid is unique only with its start time and pid namespace."""

    instance: str
    """Instance id of its data directory."""
    pid: int
    started: int
    """Clock ticks since boot."""
    space: str
    """Boot and pid namespace. Empty if unknown."""

    def shares_pid_space(self, other: Holder) -> bool:
        """Whether both are in the same pid namespace."""
        return bool(self.space) and self.space == other.space


def holder_of(held: HostLease) -> Holder | None:
    """The holder of a lease. None if its worker is of an older version that did not record it."""
    try:
        return Holder.model_validate_json(held.holder)
    except ValidationError:
        return None


def is_silent(held: HostLease, lease_s: float) -> bool:
    """Whether a lease has passed without a heartbeat, on the database's clock. One may still be on its way."""
    return held.silent_s >= (lease_s or SILENT_S)


def this_process(instance: str) -> Holder:
    """The identity of this process. `instance`: id of its data directory."""
    me = mark(os.getpid())
    return Holder(instance=instance, pid=os.getpid(), started=me.started if me else 0, space=pid_namespace())


def is_dead(holder: Holder, me: Holder) -> bool:
    """Whether the process has certainly ended: its pid can be checked here, or this process now holds its lock."""
    if holder.instance == me.instance:
        return True
    return holder.shares_pid_space(me) and mark(holder.pid) != ProcessIdentity(holder.pid, holder.started)


class Takeover:
    """Takes the lock of an engine, if necessary by killing a worker that hangs."""

    def __init__(
        self,
        database: Database,
        name: str,
        lease_s: float,
        me: Holder,
        *,
        sign: Path | None = None,
        sleep: Callable[[float], object] | None = None,
    ) -> None:
        """`name`: of the host; `lease_s`: as in `Heartbeat`; 0: no worker is killed.

        `sign`: the liveness file that a worker's watchdog touches while all of its loops make progress.
        """
        self._liveness_file = sign
        self._database = database
        self._name = name
        self._lease_s = lease_s
        self._me = me
        self._sleep = sleep or threading.Event().wait

    def take(self, path: Path) -> IO[str]:
        """Lock the engine until the returned file is closed.

        Raises:
            WorkerRunning: another process holds the lock, and is alive or cannot be checked from here.
        """
        try:
            return lock_engine(path)
        except WorkerRunning:
            hung = self._find_hung_worker()
            if hung is None or not hung.kill():
                raise
        _log.warning("killed the previous worker (process %d), which hung; recovering its calls", hung.pid)
        for _ in range(int(KILL_TIMEOUT_S / POLL_S)):
            with suppress(WorkerRunning):
                return lock_engine(path)
            self._sleep(POLL_S)
        return lock_engine(path)

    def _find_hung_worker(self) -> ProcessIdentity | None:
        seen = self._read_lease()
        holder = holder_of(seen) if seen is not None else None
        if seen is None or holder is None or not self._lease_s or not is_silent(seen, self._lease_s):
            return None
        known = ProcessIdentity(holder.pid, holder.started)
        is_ours = holder.instance == self._me.instance and holder.shares_pid_space(self._me)
        if not is_ours or holder.pid == self._me.pid or not known.alive:
            return None
        _log.warning("the previous worker (process %d) has sent no heartbeat for %.0f s", holder.pid, seen.silent_s)
        touched = self._liveness_mtime()
        for _ in range(CHECKS):
            self._sleep(self._lease_s / 2 / CHECKS)
            now = self._read_lease()
            # A worker whose heartbeats the database refuses still touches its file, and does not hang.
            if now is None or now[:3] != seen[:3] or self._liveness_mtime() != touched:
                return None
        return known

    def _liveness_mtime(self) -> int:
        try:
            return self._liveness_file.stat().st_mtime_ns if self._liveness_file is not None else 0
        except FileNotFoundError:
            return 0

    def _read_lease(self) -> HostLease | None:
        with self._database.read() as connection:
            return store.find_lease(connection, self._name)


def check_no_other_worker(held: HostLease | None, this_holder: Holder, lease_s: float) -> None:
    """Check that no worker of another data directory serves the host.

    Raises:
        WorkerRunning: one does, or did less than a lease ago and may continue.
    """
    holder = holder_of(held) if held is not None else None
    if held is None or holder is None or held.is_over or is_silent(held, lease_s) or is_dead(holder, this_holder):
        return
    raise WorkerRunning(
        f"Another worker serves this host from another data directory (last heartbeat {held.silent_s:.0f} s ago).",
        advice=f"Stop it first. If it is gone for good, start this one {lease_s or SILENT_S:.0f} s after the last heartbeat."
        " Another engine needs its own CODESDK_HOST_NAME.",
    )
