"""Judges silence: a host whose heartbeat stands still for a lease, on this process's own clock, is lost."""

from __future__ import annotations

import logging
from typing import NamedTuple

from codesdk.domain.clock import Clock
from codesdk.domain.ids import HostId
from codesdk.eventlog.audit import INSTALLATION, Act, Trail
from codesdk.hosts import store
from codesdk.hosts.host import HostRecord, HostState
from codesdk.storage.database import Database
from codesdk.storage.writer import Unit, Writer

_log = logging.getLogger(__name__)

ALONE = 10
"""Leases that a host may be silent while no other is heard: nothing is won by ending sessions that can go nowhere else."""
LOOKS = 4
"""A look counts at most this part of a lease: who was away itself, or had no database, has not seen anybody's silence."""


class Seen(NamedTuple):
    """What was last seen of a host, and for how many seconds it has been so."""

    generation: int
    heartbeat: int
    silent_s: float


class LeaseWatch:
    """Watches every host; as many processes may as there are. `look` is called from one thread at a time."""

    def __init__(self, database: Database, writer: Writer, clock: Clock, lease_s: float) -> None:
        """`lease_s`: seconds of silence, `ALONE` times as many while no other host could take sessions; 0: nobody is judged."""
        self._database = database
        self._writer = writer
        self._clock = clock
        self._trail = Trail(clock)
        self._lease_s = lease_s
        self._seen: dict[HostId, Seen] = {}
        self._looked_at = clock.monotonic()

    def look(self) -> list[HostRecord]:
        """Look once; the hosts that this look has given up.

        Raises:
            StorageUnavailable: nothing was seen.
        """
        if not self._lease_s:
            return []
        with self._database.read() as connection:
            beating = [host for host in store.known(connection) if host.state is not HostState.LOST and not host.away]
        now = self._clock.monotonic()
        passed = min(now - self._looked_at, self._lease_s / LOOKS)
        self._looked_at = now
        self._seen = {host.id: self._see(host, passed) for host in beating}
        silent_s = {host.id: self._seen[host.id].silent_s for host in beating}
        is_one_heard = any(host.state is HostState.ACTIVE and silent_s[host.id] < self._lease_s for host in beating)
        patience_s = self._lease_s * (1 if is_one_heard else ALONE)
        return [host for host in beating if silent_s[host.id] >= patience_s and self._lose(host, silent_s[host.id])]

    def _see(self, host: HostRecord, passed: float) -> Seen:
        before = self._seen.get(host.id)
        same = before is not None and before[:2] == (host.generation, host.heartbeat)
        return Seen(host.generation, host.heartbeat, before.silent_s + passed if before is not None and same else 0.0)

    def _lose(self, host: HostRecord, silent_s: float) -> bool:
        def lose(unit: Unit) -> bool:
            lost = store.lose(unit.connection, host.id, generation=host.generation, heartbeat=host.heartbeat)
            if lost is not None:
                why = f"silent for {silent_s:.0f} s"
                self._trail.record(unit, INSTALLATION, Act.HOST_LOST, actor="lease", target=host.name, why=why)
            return lost is not None

        is_lost = self._writer.run(lose)
        if is_lost:
            _log.error("the host %s is lost: no heartbeat for %.0f s", host.name, silent_s)
        return is_lost
