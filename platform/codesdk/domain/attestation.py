"""Isolation of a running sandbox as read back from the engine and the kernel."""

from __future__ import annotations

from enum import StrEnum

from codesdk.domain.execution import ToolExecutionEnv
from codesdk.domain.model import FrozenModel


class ExecSeparation(StrEnum):
    """What a process of one exec is kept from doing to a process of another, although they share a uid."""

    FULL = "full"
    """Tracing it, and opening its memory, descriptors, environment or directories."""
    MEMORY = "memory"
    """Tracing it and opening its memory; not its descriptors and environment."""
    NONE = "none"
    """Nothing."""
    UNKNOWN = "unknown"
    """It was not measured."""


class Attestation(FrozenModel):
    """What engine and kernel report of a running sandbox. Read back after the start and compared with the request."""

    network_interfaces: tuple[str, ...]
    """Interface names. A container has only `lo`."""
    tool_uid: int
    """User and group id that tools run as."""
    uid_map: str = ""
    """Mapping of user ids to the host's: `inside outside count` per range. Empty if it was not requested."""
    capabilities: tuple[str, ...]
    """Capabilities of the container's first process."""
    no_new_privileges: bool
    """True: no program in the sandbox can gain privileges."""
    seccomp: str
    """The kernel's syscall filter: `filter` or `disabled`."""
    read_only_root: bool
    """True: only the workspace and `/tmp` are writable."""
    memory_bytes: int
    """The memory limit."""
    pids_limit: int
    """The limit on processes and threads."""
    runtime: str
    """The container runtime: `runc`, `runsc` …"""
    image: str
    """Id of the image, `sha256:…`."""
    disk_cap: str = "none"
    """What limits the workspace's bytes and inodes: `loop`, `tmpfs`, `counted` (the runner counts, with an overshoot)
    or `none`.
    """
    exec_separation: ExecSeparation = ExecSeparation.UNKNOWN
    """What one exec's processes are kept from doing to another's, as tried at the start."""
    environment: str = ToolExecutionEnv.CODESDK_DOCKER.value
    """Where tools run, as in `execution_env`."""
    enforced: tuple[str, ...] = ()
    """For environments weaker than a container: sentences about what they enforce."""
    not_enforced: tuple[str, ...] = ()
    """Sentences about what the environment does not enforce. Read them before you trust work to it."""
