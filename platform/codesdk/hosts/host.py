"""The host record, its state and its faults."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from codesdk.domain.ids import HostId
from codesdk.domain.model import FrozenModel
from codesdk.domain.sandbox_resources import Need
from codesdk.errors import ExitCode, Fault


class HostState(StrEnum):
    """Whether the host takes sessions."""

    ACTIVE = "active"
    """New sessions go there."""
    DRAINING = "draining"
    """No new sessions; existing ones continue. Set by an operator; survives restarts of the worker."""
    LOST = "lost"
    """The lease expired, or an operator declared the host lost. Its sessions have ended. The next worker reactivates it."""


class Capacity(FrozenModel):
    """Limits on the total of all its sessions, set by the operator. 0: no limit."""

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
    """The engine's id. Empty if no worker of this version has served it."""
    state: HostState
    away: bool
    """Its worker was stopped normally. Its sessions wait, and placement prefers other hosts."""
    capacity: Capacity
    reserved: Need
    """Sum over the sandboxes of its sessions."""
    sessions: int
    """Sessions with a sandbox that is not gone."""
    queued_calls: int = 0
    """Queued calls that wait only for capacity. Counted when hosts are shown or listed."""
    running_calls: int = 0
    """Running calls, counted likewise."""
    labels: dict[str, str]
    """The operator's; a session may ask for some."""
    images: dict[str, str]
    """Image name -> image id there."""
    generation: int
    """Raised by each worker that takes it over, and when it is lost."""
    heartbeat: int
    """Counts up while its worker lives."""
    silent_s: float | None = None
    """Seconds since the last heartbeat, on the database's clock. None: no heartbeat yet in this version.
    For display and takeover; `hosts.lease_watch` measures silence itself."""
    registered_at: float
    """When its newest worker registered, in seconds since the epoch."""


class HostUnknown(Fault):
    """No host has that name or id."""

    code = "HOST_UNKNOWN"
    status = 404
    exit_code = ExitCode.FAILED


class HostConflict(Fault):
    """The host's state does not allow this."""

    code = "HOST_CONFLICT"
    status = 409
    exit_code = ExitCode.FAILED
