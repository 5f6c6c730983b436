"""A sandbox profile: all limits of a sandbox, as data. Policy may tighten it, never loosen it."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, Literal

from pydantic import Field

from codesdk.domain.decisions import Obligations, SandboxBounds
from codesdk.domain.model import FrozenModel
from codesdk.sandbox.egress.intersection import intersect, restrict_to_hosts
from codesdk.sandbox.egress.rules import DENY_ALL, EgressRules


class Seccomp(StrEnum):
    """Which filter of system calls a sandbox gets."""

    CODESDK = "codesdk"
    """Our allowlist, see `sandbox.seccomp`."""
    ENGINE = "engine"
    """The engine's default, for programs that need calls that ours denies (debuggers, 32-bit programs)."""


class ToolUid(StrEnum):
    """Which uid tools get."""

    UNIQUE = "unique"
    """Unique on the host, because limits, signals and /proc access are per uid (`sandbox.records.store`)."""


class WorkspaceMode(StrEnum):
    """What tools may do with the workspace."""

    RW = "rw"
    RO = "ro"
    """Tools read what the session was seeded with. A separate uid, neither root's nor the tool's, owns every file."""
    NONE = "none"
    """No workspace: an empty directory that no tool can write."""


class Profile(FrozenModel):
    """Limits of one kind of sandbox. Sizes in bytes, times in seconds."""

    name: str = Field(default="default", pattern=r"^[a-z][a-z0-9-]{0,39}$")
    image: str = Field(default="base", pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")
    """A folder in `sandbox-images/`, or an entry of the operator's `images.yaml`."""
    runtime: str = Field(default="runc", pattern=r"^[a-z0-9][a-z0-9._-]{0,39}$")
    """Container runtime, by the engine's name. A profile file may only name tested ones (`RUNTIMES`)."""
    seccomp: Seccomp = Seccomp.CODESDK
    memory_bytes: int = Field(default=512 * 1024 * 1024, ge=32 * 1024 * 1024)
    swap_bytes: int = Field(default=0, ge=0)
    """Swap on top of `memory_bytes`; 0 for none."""
    cpus: float = Field(default=1.0, gt=0)
    pids: int = Field(default=256, ge=80)
    open_files: int = Field(default=1024, ge=64)
    file_bytes: int = Field(default=256 * 1024 * 1024, ge=0)
    """Largest file that a tool may write (RLIMIT_FSIZE)."""
    tmp_bytes: int = Field(default=64 * 1024 * 1024, ge=0)
    """Size of /tmp (tmpfs)."""
    shm_bytes: int = Field(default=64 * 1024 * 1024, ge=0)
    """Size of /dev/shm (tmpfs), the engines' default. A program that maps more gets SIGBUS."""
    keep_output_bytes: int = Field(default=16 * 1024 * 1024, ge=0)
    """Bytes of each stream kept per exec."""
    show_output_bytes: int = Field(default=32 * 1024, ge=256)
    """Bytes of each stream shown to the model, half head and half tail."""
    max_read_bytes: int = Field(default=4 * 1024 * 1024, ge=1024)
    wall_s: float = Field(default=600.0, gt=0)
    """Wall time of one exec."""
    grace_s: float = Field(default=2.0, ge=0)
    """Time between TERM and KILL."""
    background_processes: bool = True
    """Whether `process.start` may run. If not, nothing outlives its call: what one leaves is killed before its end."""
    egress: EgressRules = DENY_ALL
    """Hosts that execs may reach, if the exec itself may use egress too. The container has no network."""
    tool_uid: ToolUid = ToolUid.UNIQUE
    read_only_root: Literal[True] = True
    """Always True: files written to the root would be uncapped and outlive the exec that wrote them."""
    workspace: str = Field(default="/workspace", pattern=r"^/[a-z0-9._-]+$")
    """Path of the workspace. The image must contain the directory, because its root is read-only."""
    workspace_mode: WorkspaceMode = WorkspaceMode.RW
    workspace_bytes: int = Field(default=1024 * 1024 * 1024, ge=0)
    """Cap of the workspace; 0 for none. `isolation.disk_quota` chooses how to enforce it; `codesdk doctor` shows it."""
    workspace_inodes: int = Field(default=100_000, ge=1024)
    """Maximum files and directories, if the workspace is capped."""
    pause_after_s: float = Field(default=300.0, ge=0)
    """After this idle time, processes are frozen until the next call; 0 for never."""
    idle_s: float = Field(default=4 * 3600.0, ge=0)
    """After this idle time, session and sandbox are closed; 0 for never."""
    lifetime_s: float = Field(default=24 * 3600.0, ge=0)
    """After this time since its start, session and sandbox are closed even if something runs; 0 for never."""

    def tighten(self, obligations: Obligations) -> Profile:
        """Return this profile tightened by the policy's obligations. No field becomes looser."""
        bounds = obligations.sandbox.model_dump(exclude_none=True)
        if (patterns := bounds.pop("egress", None)) is not None:
            bounds["egress"] = restrict_to_hosts(self.egress, patterns)
        if obligations.timeout_s is not None:
            bounds["wall_s"] = obligations.timeout_s
        return self.tightened(**bounds)

    def bounds(self) -> SandboxBounds:
        """Return the limits of this profile that can apply to a single call in a sandbox of another profile."""
        numbers = {name: getattr(self, name) for name in SandboxBounds.model_fields if name != "egress"}
        numbers["file_bytes"] = numbers["file_bytes"] or None  # 0 is no limit
        return SandboxBounds(**numbers, egress=tuple(rule.host for rule in self.egress.rules))

    def tightened(self, **limits: Any) -> Profile:
        """Return this profile with each value that is tighter than its own.

        Raises:
            KeyError: a field that policy can't set.
        """
        changes = {name: TIGHTER[name](getattr(self, name), value) for name, value in limits.items()}
        return Profile.model_validate({**self.model_dump(), **changes})


def _least(one: float, other: float) -> float:
    return min(one, other)


def _least_above_zero(one: float, other: float) -> float:
    """Return the lower value, where 0 means no limit."""
    return min(one or other, other or one)


def _stricter_of(*strictest_first: str) -> Callable[[Any, Any], Any]:
    def place(value: Any) -> int:
        return strictest_first.index(value) if value in strictest_first else len(strictest_first)

    return lambda one, other: min(one, other, key=place)


RUNTIMES = ("runsc", "runc")
"""Container runtimes that pass the sandbox tests, strictest first."""
TIGHTER: dict[str, Callable[[Any, Any], Any]] = {
    **dict.fromkeys(
        (
            "memory_bytes", "swap_bytes", "cpus", "pids", "open_files", "tmp_bytes", "shm_bytes", "keep_output_bytes",
            "show_output_bytes", "max_read_bytes", "wall_s", "grace_s", "workspace_inodes",
        ),
        _least,
    ),
    **dict.fromkeys(("file_bytes", "workspace_bytes", "pause_after_s", "idle_s", "lifetime_s"), _least_above_zero),
    "background_processes": min,  # False is stricter
    "runtime": _stricter_of(*RUNTIMES),
    "seccomp": _stricter_of(Seccomp.CODESDK, Seccomp.ENGINE),
    "workspace_mode": _stricter_of(WorkspaceMode.NONE, WorkspaceMode.RO, WorkspaceMode.RW),
    "egress": intersect,
}  # fmt: skip
"""Returns the tighter of two values, by field. A field without an entry has no order and must be equal."""
