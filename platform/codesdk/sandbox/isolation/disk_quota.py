"""Chooses how a workspace's bytes and inodes are capped, and the volume options for it.

Doesn't touch any device; `docker.loop_disks` does.
"""

from __future__ import annotations

import os
import shutil
import socket
from enum import StrEnum
from pathlib import Path
from typing import Any

from codesdk.domain.model import FrozenModel
from codesdk.sandbox.port import SandboxSpec
from codesdk.sandbox.profiles.profile import Profile

LOOP_CONTROL = Path("/dev/loop-control")
MKFS = "mkfs.ext4"
LABEL = "codesdk.disk"
"""Label of container and volume with the backend in use."""


class QuotaBackend(StrEnum):
    """How the cap is enforced."""

    TMPFS = "tmpfs"
    """In memory, for small workspaces. Counts towards the sandbox's memory."""
    LOOP = "loop"
    """An ext4 image file on a loop device: a hard cap on disk."""
    COUNTED = "counted"
    """The runner measures usage and kills execs over the cap, with an overshoot: see `runner.workspace.quota`."""
    NONE = "none"
    """No cap: the workspace is a directory of the engine and can fill its disk."""


class QuotaSupport(FrozenModel):
    """Quota features of the machine and the engine."""

    loop_missing: tuple[str, ...] = ("no directory for workspace images is configured",)
    """Reasons why loop-mounted workspaces don't work here; empty if they do."""
    project_quota: bool = False
    """Whether the engine's disk has project quotas. Only reported: local volumes have no option to set one."""


def choose_backend(profile: Profile, facts: QuotaSupport) -> QuotaBackend:
    """Return the quota backend for this profile's workspace."""
    if not profile.workspace_bytes:
        return QuotaBackend.NONE
    if profile.workspace_bytes <= profile.memory_bytes // 2:
        return QuotaBackend.TMPFS
    return QuotaBackend.COUNTED if facts.loop_missing else QuotaBackend.LOOP


def volume_options(spec: SandboxSpec, cap: QuotaBackend, device: str = "") -> dict[str, str]:
    """Return the driver options of the workspace's volume. `device`: its loop device.

    An uncapped workspace is a directory of the engine, for which the engine can't set `nosuid,nodev`; no-new-privileges
    and the missing MKNOD capability have the same effect.
    """
    profile, uid = spec.profile, spec.tool_uid
    match cap:
        case QuotaBackend.NONE | QuotaBackend.COUNTED:
            return {}
        case QuotaBackend.TMPFS:
            size = f"size={profile.workspace_bytes},nr_inodes={profile.workspace_inodes}"
            return {"type": "tmpfs", "device": "tmpfs", "o": f"{size},uid={uid},gid={uid},mode=755,nosuid,nodev"}
        case QuotaBackend.LOOP:
            return {"type": "ext4", "device": device, "o": "nosuid,nodev,noatime"}


def detect_support(endpoint: str, info: dict[str, Any], *, is_engine_container: bool = False) -> QuotaSupport:
    """Detect quota support from this machine and the engine's `/info`.

    `is_engine_container`: this process is in a container of that engine, and so shares its kernel and devices.
    """
    root = Path(str(info.get("DockerRootDir") or "/nonexistent"))
    here = "unix://" in endpoint or endpoint.startswith("http+docker")
    is_ours = here and info.get("Name") == socket.gethostname() and root.is_dir()
    missing = [
        reason
        for reason, met in (
            ("the engine is not on this machine", is_ours or is_engine_container),
            ("the engine is rootless", "name=rootless" not in (info.get("SecurityOptions") or ())),
            (f"{LOOP_CONTROL} cannot be opened by this user", _can_open(LOOP_CONTROL)),
            (f"{MKFS} is not installed (e2fsprogs)", mkfs() is not None),
        )
        if not met
    ]
    return QuotaSupport(loop_missing=tuple(missing), project_quota=_has_project_quota(root))


def _can_open(device: Path) -> bool:
    """Return whether the device can be opened: in a container it can exist and still be forbidden."""
    try:
        os.close(os.open(device, os.O_RDWR | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def mkfs() -> str | None:
    """Return the path of mkfs.ext4; searches sbin too, which root's PATH may lack."""
    return shutil.which(MKFS) or shutil.which(MKFS, path="/usr/sbin:/sbin")


def _has_project_quota(place: Path) -> bool:
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    above = {str(place), *map(str, place.parents)}
    options = [mount[3].split(",") for mount in sorted(mounts, key=lambda mount: len(mount[1])) if mount[1] in above]
    return bool(options) and bool({"prjquota", "pquota"} & set(options[-1]))
