"""A sandbox profile: everything that limits a sandbox, as data. Policy may tighten it and never loosen it."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from codesdk.domain.decisions import Frozen


class Seccomp(StrEnum):
    """Which filter of system calls a sandbox gets."""

    CODESDK = "codesdk"
    """Ours: see `sandbox.seccomp`."""
    ENGINE = "engine"
    """The engine's default, for programs that need what ours refuses (debuggers, 32-bit programs)."""


class Profile(Frozen):
    """Limits of one kind of sandbox. Sizes in bytes, times in seconds."""

    name: str = "default"
    image: str = "base"
    """Name of a folder in `sandbox-images/`."""
    runtime: str = "runc"
    seccomp: Seccomp = Seccomp.CODESDK
    memory_bytes: int = Field(default=512 * 1024 * 1024, ge=32 * 1024 * 1024)
    """Memory and swap together: swap is off."""
    cpus: float = Field(default=1.0, gt=0)
    pids: int = Field(default=256, ge=80)
    open_files: int = Field(default=1024, ge=64)
    file_bytes: int = Field(default=256 * 1024 * 1024, ge=0)
    """Largest file that a tool may write (RLIMIT_FSIZE)."""
    tmp_bytes: int = Field(default=64 * 1024 * 1024, ge=0)
    """Size of /tmp (tmpfs)."""
    shm_bytes: int = Field(default=16 * 1024 * 1024, ge=0)
    keep_output_bytes: int = Field(default=16 * 1024 * 1024, ge=0)
    """Bytes of each stream kept per exec."""
    show_output_bytes: int = Field(default=32 * 1024, ge=256)
    """Bytes of each stream shown to the model: half head, half tail."""
    max_read_bytes: int = Field(default=4 * 1024 * 1024, ge=1024)
    wall_s: float = Field(default=120.0, gt=0)
    """Wall time of one exec."""
    grace_s: float = Field(default=2.0, ge=0)
    """Between TERM and KILL."""
    workspace: str = "/workspace"
    workspace_bytes: int = Field(default=0, ge=0)
    """Cap of the workspace; 0 for none. A capped workspace lies in memory (tmpfs) and counts towards `memory_bytes`."""
