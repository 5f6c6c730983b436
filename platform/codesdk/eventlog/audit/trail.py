"""Writes audit entries in the same transaction as the action that they record."""

from __future__ import annotations

from typing import Any

from codesdk.domain.clock import Clock, to_rfc3339
from codesdk.eventlog.audit import store
from codesdk.eventlog.audit.entry import AuditAction, AuditRecord
from codesdk.storage.writer import Unit


class AuditTrail:
    """Records audited actions."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def record(self, unit: Unit, chain: str, act: AuditAction, *, actor: str, target: str, **details: Any) -> None:
        """Record an action; it is stored with the unit's commit. `chain`: a tenant's id, or `installation`."""
        time = to_rfc3339(self._clock.now())
        deed = AuditRecord(chain=chain, time=time, act=act.value, actor=actor, target=target, details=details)
        # A last step, in the order of chains: the holder of a chain's lock then waits only for the commit.
        unit.at_end(f"audit {chain}", lambda connection: store.append(connection, deed))
