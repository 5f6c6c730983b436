"""A host as everybody but its own worker sees it, and its faults."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from codesdk.domain.ids import HostId
from codesdk.domain.model import FrozenModel
from codesdk.domain.sandbox_resources import Need
from codesdk.errors import ExitCode, Fault


class HostState(StrEnum):
    """What may be done on it."""

    ACTIVE = "active"
    """New sessions go there."""
    DRAINING = "draining"
    """No new session; those that it has go on. An operator says so, and it outlives the worker."""
    LOST = "lost"
    """Its worker fell silent, or an operator gave it up: its sessions have ended. The next worker makes it active."""


class Capacity(FrozenModel):
    """What its sessions may take together, as the operator states it; 0 for no limit."""

    memory_bytes: int = Field(default=0, ge=0)
    """Memory and swap that the profiles of its sandboxes allow."""
    millicpus: int = Field(default=0, ge=0)
    """Thousandths of a CPU, likewise."""
    sessions: int = Field(default=0, ge=0)
    """Sessions whose sandbox is not gone."""


class HostRecord(FrozenModel):
    """A row of `hosts`, with what is reserved there."""

    id: HostId
    name: str
    engine: str
    """The engine's own id; empty where no worker of this version has served it."""
    state: HostState
    away: bool
    """Its worker was stopped in order and has not come back: what is there waits, and others are chosen first."""
    capacity: Capacity
    reserved: Need
    """Sum over the sandboxes of its sessions."""
    sessions: int
    """Sessions with a sandbox that is not gone."""
    queued_calls: int = 0
    """Calls of its sessions that nothing but room keeps from starting; counted where it is asked for by name or list."""
    running_calls: int = 0
    """Likewise, those that run."""
    labels: dict[str, str]
    """The operator's; a session may ask for some."""
    images: dict[str, str]
    """Image name -> image id there."""
    generation: int
    """Raised by each worker that takes it over, and when it is lost."""
    heartbeat: int
    """Counts up while its worker lives."""
    silent_s: float | None = None
    """Seconds since its worker was last heard, on the database's clock, when this was read; None: never, in this version.
    For people, and for a worker that would follow; `hosts.watch` does not judge by it."""
    registered_at: float
    """Seconds since the epoch, when its newest worker came."""


class HostUnknown(Fault):
    """No host has that name or id."""

    code = "HOST_UNKNOWN"
    status = 404
    exit_code = ExitCode.FAILED


class HostConflict(Fault):
    """The host is not in a state that this can be done to."""

    code = "HOST_CONFLICT"
    status = 409
    exit_code = ExitCode.FAILED
