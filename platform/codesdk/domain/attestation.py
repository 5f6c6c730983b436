"""Isolation of a running sandbox as read back from the engine and the kernel."""

from __future__ import annotations

from codesdk.domain.execution import ToolExecutionEnv
from codesdk.domain.model import FrozenModel


class Attestation(FrozenModel):
    """What engine and kernel say of the running sandbox, read back after start; compared with what was asked."""

    network_interfaces: tuple[str, ...]
    """Names; a container of ours has `lo` alone."""
    tool_uid: int
    """User and group that tools run as."""
    uid_map: str = ""
    """How user ids inside map to the machine's: `inside outside count` for each range; empty where it was not asked."""
    capabilities: tuple[str, ...]
    """Those of the container's first process."""
    no_new_privileges: bool
    """Set: no program in it can gain rights."""
    seccomp: str
    """The kernel's filter: `filter`, or `disabled`."""
    read_only_root: bool
    """Nothing but the workspace and `/tmp` can be written."""
    memory_bytes: int
    """The limit."""
    pids_limit: int
    """The limit of processes and threads."""
    runtime: str
    """The container runtime: `runc`, `runsc` …"""
    image: str
    """Id of the image, `sha256:…`."""
    disk_cap: str = "none"
    """What caps the workspace's bytes and inodes: `loop`, `tmpfs`, `counted` (the runner counts, with an overshoot), or
    `none` where nothing does."""
    environment: str = ToolExecutionEnv.CODESDK_DOCKER.value
    """Where tools run, as `execution_env`."""
    enforced: tuple[str, ...] = ()
    """Sentences: what a weaker environment than a container does hold; empty for a container."""
    not_enforced: tuple[str, ...] = ()
    """Sentences: what it does not hold, and a person must know before work is trusted to it."""
