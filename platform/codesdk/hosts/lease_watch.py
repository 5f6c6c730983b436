"""Lease watch: declares a host lost after a lease without a heartbeat, measured on this process's clock."""

from __future__ import annotations

import logging
from typing import NamedTuple

from codesdk.domain.clock import Clock
from codesdk.domain.ids import HostId
from codesdk.eventlog.audit import INSTALLATION, AuditAction, AuditTrail
from codesdk.hosts import store
from codesdk.hosts.host import HostRecord, HostState
from codesdk.storage.database import Database
from codesdk.storage.writer import Unit, Writer

_log = logging.getLogger(__name__)

SOLE_HOST_LEASES = 10
"""Leases that a host may be silent while no other host is alive: ending its sessions would gain nothing."""
LOOKS_PER_LEASE = 4
"""Checks count at most this fraction of a lease each: a process that was paused, or had no database, saw no silence."""


class Observation(NamedTuple):
    """The heartbeat last seen, and for how many seconds it has not changed."""

    generation: int
    heartbeat: int
    silent_s: float


class LeaseWatch:
    """Watches all hosts. Any number of processes may. Call `look` from one thread at a time."""

    def __init__(self, database: Database, writer: Writer, clock: Clock, lease_s: float) -> None:
        """`lease_s`: seconds of silence, `SOLE_HOST_LEASES` times as many while no other host could take sessions; 0: never."""
        self._database = database
        self._writer = writer
        self._clock = clock
        self._trail = AuditTrail(clock)
        self._lease_s = lease_s
        self._observed: dict[HostId, Observation] = {}
        self._looked_at = clock.monotonic()

    def look(self) -> list[HostRecord]:
        """Check once. Returns the hosts that this check declared lost.

        Raises:
            StorageUnavailable: nothing was checked.
        """
        if not self._lease_s:
            return []
        with self._database.read() as connection:
            beating = [
                host for host in store.list_all(connection) if host.state is not HostState.LOST and not host.away
            ]
        now = self._clock.monotonic()
        passed = min(now - self._looked_at, self._lease_s / LOOKS_PER_LEASE)
        self._looked_at = now
        self._observed = {host.id: self._observe(host, passed) for host in beating}
        silent_s = {host.id: self._observed[host.id].silent_s for host in beating}
        is_one_heard = any(host.state is HostState.ACTIVE and silent_s[host.id] < self._lease_s for host in beating)
        patience_s = self._lease_s * (1 if is_one_heard else SOLE_HOST_LEASES)
        return [host for host in beating if silent_s[host.id] >= patience_s and self._lose(host, silent_s[host.id])]

    def _observe(self, host: HostRecord, passed: float) -> Observation:
        before = self._observed.get(host.id)
        same = before is not None and before[:2] == (host.generation, host.heartbeat)
        return Observation(
            host.generation, host.heartbeat, before.silent_s + passed if before is not None and same else 0.0
        )

    def _lose(self, host: HostRecord, silent_s: float) -> bool:
        def lose(unit: Unit) -> bool:
            lost = store.mark_lost(unit.connection, host.id, generation=host.generation, heartbeat=host.heartbeat)
            if lost is not None:
                why = f"silent for {silent_s:.0f} s"
                self._trail.record(unit, INSTALLATION, AuditAction.HOST_LOST, actor="lease", target=host.name, why=why)
            return lost is not None

        is_lost = self._writer.run(lose)
        if is_lost:
            _log.error("the host %s is lost: no heartbeat for %.0f s", host.name, silent_s)
        return is_lost
