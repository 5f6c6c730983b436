"""The process that serves a host, as its row names it."""

from __future__ import annotations

from pydantic import ValidationError

from codesdk.domain.model import FrozenModel
from codesdk.hosts.store import HostLease

SILENT_S = 30.0
"""Seconds after which a worker counts as silent where silence is never judged: six heartbeats, as in a lease."""


class Holder(FrozenModel):
    """A worker's process. A pid means something in its own `space` alone, and with its start time alone."""

    instance: str
    """Of the data directory whose lock it holds."""
    pid: int
    started: int
    """Clock ticks since boot."""
    space: str
    """This boot of this machine, and this container of it; empty where that is not known."""

    def shares_pid_space(self, other: Holder) -> bool:
        """Whether the other's pid means the same to this one."""
        return bool(self.space) and self.space == other.space


def holder_of(held: HostLease) -> Holder | None:
    """Who it is; None where its worker, of an older version, did not say."""
    try:
        return Holder.model_validate_json(held.holder)
    except ValidationError:
        return None


def is_silent(held: HostLease, lease_s: float) -> bool:
    """Whether it was not heard for a lease, on the database's clock. Its next heartbeat may be on its way."""
    return held.silent_s >= (lease_s or SILENT_S)
