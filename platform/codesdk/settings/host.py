"""What a worker's host is called and may hold: threads, capacity, snapshots, sandboxes that wait."""

from __future__ import annotations

import json
from typing import Annotated, Any, Self

from pydantic import Field, field_validator, model_validator
from pydantic_settings import NoDecode

from codesdk.settings.group import SettingsGroup

MAX_WARM = 64
"""Started sandboxes that wait, of all profiles together: each holds 7 MB and a container's worth of processes."""


class HostSettings(SettingsGroup):
    """One engine with its worker."""

    worker_threads: int = Field(default=16, ge=1, le=256)
    """Calls of one tenant that a worker runs at once. A quarter as many again stand ready for other tenants' calls."""
    host_name: str = Field(default="local", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")
    """What the worker's host is called: one name for one engine, and another for each further one."""
    host_labels: Annotated[dict[str, str], NoDecode] = {}
    """What sessions may ask their host for: `zone=a,gpu=yes`."""
    host_memory_bytes: int = Field(default=0, ge=0)
    """Memory and swap that the sandboxes of its sessions may be allowed together; 0: no limit."""
    host_cpus: float = Field(default=0.0, ge=0)
    """CPUs, likewise."""
    host_sessions: int = Field(default=0, ge=0)
    """Sessions that it may have, those counted whose sandbox is not removed yet; 0: no limit."""
    host_lease_s: float = Field(default=30.0, ge=0)
    """Seconds of silence after which a host whose worker was not stopped in order is lost, and its sessions end; ten
    times as many while no other host is heard; 0: never."""
    snapshots: bool = False
    """Whether sessions whose opener does not say have snapshots of their workspaces taken."""
    snapshot_bytes: int = Field(default=256 * 1024**2, gt=0)
    """Bytes of one snapshot; of a workspace that has more none is taken."""
    snapshot_every_s: float = Field(default=60.0, gt=0)
    """Seconds between two snapshots of one session, at least."""
    warm_pool: int = Field(default=1, ge=0, le=MAX_WARM)
    """Started sandboxes of the default profile that wait for a session; 0 for none."""
    warm_pools: Annotated[dict[str, Annotated[int, Field(ge=0)]], NoDecode] = {}
    """The same of further profiles, by name: `build=2,node=1`."""

    @field_validator("host_labels", mode="before")
    @classmethod
    def _read_labels(cls, given: Any) -> Any:
        if not isinstance(given, str):
            return given
        if given.startswith("{"):
            return json.loads(given)  # as a parent process hands its settings on
        pairs = [part.partition("=") for part in given.replace(",", " ").split()]
        if any(not (name and sign) for name, sign, _ in pairs):
            raise ValueError("labels are written as `zone=a,gpu=yes`")
        return {name: value for name, _, value in pairs}

    @field_validator("warm_pools", mode="before")
    @classmethod
    def _read_sizes(cls, given: Any) -> Any:
        if not isinstance(given, str):
            return given
        if given.startswith("{"):
            return json.loads(given)  # as a parent process hands its settings on
        pairs = [part.partition("=") for part in given.replace(",", " ").split()]
        if any(not size.isdecimal() for _, _, size in pairs):
            raise ValueError("sizes are written as `build=2,node=1`")
        return {name: int(size) for name, _, size in pairs}

    @model_validator(mode="after")
    def _check_warm(self) -> Self:
        if sum(self.pool_sizes("").values()) > MAX_WARM:
            raise ValueError(f"warm_pool and warm_pools together are more than {MAX_WARM}")
        return self

    def pool_sizes(self, default: str) -> dict[str, int]:
        """Profile -> started sandboxes that wait; `default`: the default profile's name. `warm_pools` may name it too."""
        return {default: self.warm_pool, **self.warm_pools}
