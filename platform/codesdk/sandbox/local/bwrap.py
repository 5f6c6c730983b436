"""Builds the bubblewrap command line that confines a runner. Inspects this system's layout, but runs nothing.

Lists everything granted with its reason; nothing else is visible in the sandbox.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from codesdk.sandbox.isolation.spec import CAPABILITIES
from codesdk.sandbox.local import seccomp

INFO_FD, SECCOMP_FD = "@info", "@seccomp"
"""Placeholders for descriptors, which the process that starts bwrap fills in."""
CGROUP_MOUNT = "/sys/fs/cgroup"
"""Where a sandbox sees its own cgroup, as in a container."""
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

SYSTEM_DIRECTORIES = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
"""Programs and libraries for tools."""
ETC_ENTRIES = {
    "alternatives": "programs of /usr/bin are links through it",
    "ca-certificates": "which authorities the certificates below come from",
    "ssl": "certificates that TLS libraries insist on loading",
    "ld.so.cache": "where libraries are",
    "ld.so.conf": "likewise",
    "ld.so.conf.d": "likewise",
    "localtime": "the time zone",
    "mime.types": "known by name to Python and others",
    "nsswitch.conf": "how names of users are looked up",
    "os-release": "what system this is",
    "protocols": "names of protocols",
    "services": "names of ports",
    "terminfo": "what terminals can do",
}
"""The part of /etc that tools see. The rest may contain secrets that file modes don't protect if root starts bwrap."""


@dataclass(frozen=True)
class BwrapConfig:
    """Values that differ between sandboxes."""

    program: str
    etc: Path
    """Directory of the sandbox's `passwd` and `group`; the machine's own would reveal its users."""
    source: Path
    workspace: str
    apart: bool
    """Whether root starts it, so that tools can run as another user. Otherwise a user namespace has only one user."""
    tmp_bytes: int = 64 * 1024 * 1024
    shm_bytes: int = 16 * 1024 * 1024
    workspace_bytes: int = 0
    """Size of a workspace in memory, which caps it; 0 to use the directory `source`."""
    cgroup: Mapping[str, str] = field(default_factory=dict)
    """Name below `CGROUP_MOUNT` -> directory of this machine: the sandbox's cgroup files, mounted read-only."""


def command(config: BwrapConfig, argv: list[str], *, info: bool = True) -> list[str]:
    """Return the command that runs `argv` confined. No --die-with-parent: a sandbox outlives its worker."""
    return [
        config.program,
        *("--unshare-net", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
        *_user(config),
        *("--new-session", "--hostname", "sandbox"),
        *_system(),
        *_etc(config.etc),
        *("--proc", "/proc", "--dev", "/dev"),
        *_tmpfs("/dev/shm", config.shm_bytes, "1777"),  # noqa: S108 - a mount point inside
        *_tmpfs("/tmp", config.tmp_bytes, "1777"),  # noqa: S108 - likewise
        *_tmpfs("/run", 1024 * 1024, "0755"),
        *_python_binds(),
        *_workspace(config),
        *_cgroup(config),
        *("--remount-ro", "/", "--chdir", "/"),
        *(("--info-fd", INFO_FD) if info else ()),
        *(("--seccomp", SECCOMP_FD) if seccomp.supported() else ()),
        "--",
        *argv,
    ]


def _user(config: BwrapConfig) -> list[str]:
    if not config.apart:
        # An unprivileged user needs a user namespace to create the others. The seccomp filter denies nested ones.
        return ["--unshare-user", "--cap-drop", "ALL"]
    granted = [part for name in CAPABILITIES for part in ("--cap-add", f"CAP_{name}")]
    return ["--cap-drop", "ALL", *granted]


def _system() -> list[str]:
    found = []
    for name in SYSTEM_DIRECTORIES:
        place = Path(name)
        if place.is_symlink():
            found += ["--symlink", str(place.readlink()), name]
        elif place.is_dir():
            found += ["--ro-bind", name, name]
    return found


def _etc(ours: Path) -> list[str]:
    shown = [part for name in ETC_ENTRIES for part in ("--ro-bind-try", f"/etc/{name}", f"/etc/{name}")]
    return [
        *_directory("/etc"),
        *shown,
        *(part for name in ("passwd", "group") for part in ("--ro-bind", str(ours / name), f"/etc/{name}")),
    ]


def _directory(place: str) -> list[str]:
    """Create a directory that every user can traverse; bubblewrap's default is root only."""
    return ["--perms", "0755", "--dir", place]


def _tmpfs(place: str, size: int, mode: str) -> list[str]:
    return ["--perms", mode, *(("--size", str(size)) if size else ()), "--tmpfs", place]


def _workspace(config: BwrapConfig) -> list[str]:
    if config.workspace_bytes:
        return _tmpfs(config.workspace, config.workspace_bytes, "0755")
    return ["--bind", str(config.source), config.workspace]


def _cgroup(config: BwrapConfig) -> list[str]:
    if not config.cgroup:
        return []
    above = [part for place in ("/sys", "/sys/fs") for part in _directory(place)]
    shown = ("--ro-bind", config.cgroup[""], CGROUP_MOUNT) if "" in config.cgroup else tuple(_directory(CGROUP_MOUNT))
    each = [
        part for name, path in config.cgroup.items() if name for part in ("--ro-bind", path, f"{CGROUP_MOUNT}/{name}")
    ]
    return [*above, *shown, *each]


def python_homes() -> list[str]:
    """Return where CodeSDK's Python is, unless in a system directory. It runs the runner and is first on PATH."""
    prefixes = {os.path.realpath(home) for home in (sys.prefix, sys.base_prefix)}
    prefixes.update((sys.prefix, sys.base_prefix))
    return sorted(
        home for home in prefixes if not any(home == top or home.startswith(f"{top}/") for top in SYSTEM_DIRECTORIES)
    )


def _python_binds() -> list[str]:
    prefixes = python_homes()
    above = {str(parent) for home in prefixes for parent in Path(home).parents} - {"/", "/tmp"}  # noqa: S108 - it has a mode
    made = [part for parent in sorted(above) for part in _directory(parent)]
    return [*made, *(part for home in prefixes for part in ("--ro-bind", home, home))]
