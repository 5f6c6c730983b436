"""What was read back of a running sandbox."""

from __future__ import annotations

from codesdk.domain.decisions import Frozen
from codesdk.domain.execution import ToolExecutionEnv


class Attestation(Frozen):
    """What engine and kernel say of the running sandbox, read back after start; compared with what was asked."""

    network_interfaces: tuple[str, ...]
    tool_uid: int
    capabilities: tuple[str, ...]
    no_new_privileges: bool
    seccomp: str
    read_only_root: bool
    memory_bytes: int
    pids_limit: int
    runtime: str
    image: str
    disk_cap: str = "none"
    """What caps the workspace's bytes and inodes: `loop`, `tmpfs`, or `none` where nothing does."""
    environment: str = ToolExecutionEnv.CODESDK_DOCKER.value
    """Where tools run, as `execution_env`."""
    enforced: tuple[str, ...] = ()
    """Sentences: what a weaker environment than a container does hold; empty for a container."""
    not_enforced: tuple[str, ...] = ()
    """Sentences: what it does not hold, and a person must know before work is trusted to it."""
