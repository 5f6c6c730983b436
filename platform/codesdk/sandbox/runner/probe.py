"""What a process with a tool's rights sees and may do: read by the worker and compared with what was asked."""

from __future__ import annotations

import errno
import os
import socket
import sys
from typing import Any

_LIMITS = {
    # what is asked: cgroup v2 file, cgroup v1 file
    "memory_bytes": ("memory.max", "memory/memory.limit_in_bytes"),
    "pids": ("pids.max", "pids/pids.max"),
    "cpu": ("cpu.max", "cpu/cpu.cfs_quota_us"),
}
_OOM_KILLS = (("memory.events", b"oom_kill "), ("memory/memory.oom_control", b"oom_kill "))
CGROUP = "/sys/fs/cgroup"


def _text(path: str) -> str | None:
    try:
        with open(path, "rb") as file:
            return file.read(1 << 20).decode("utf-8", "replace")
    except OSError:
        return None


def oom_kills() -> int | None:
    """How many processes of the sandbox the kernel has killed for memory; None where the kernel does not say."""
    for name, key in _OOM_KILLS:
        try:
            with open(CGROUP + "/" + name, "rb") as file:
                for line in file:
                    if line.startswith(key):
                        return int(line[len(key) :])
        except (OSError, ValueError):
            continue
    return None


def limits() -> dict[str, str | None]:
    """The cgroup's limits as the kernel states them; None where it shows none (gVisor)."""
    found: dict[str, str | None] = {}
    for word, names in _LIMITS.items():
        texts = (_text(CGROUP + "/" + name) for name in names)
        found[word] = next((text.strip() for text in texts if text is not None), None)
    return found


def _outcome(action: Any) -> str:
    try:
        action()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, "ERROR")
    return "ALLOWED"


def observe(runner: int) -> dict[str, Any]:
    """Run in a process that has become the tool: what it is, what it sees, and whether it can hurt the runner."""
    status: dict[str, str] = {}
    for line in (_text("/proc/self/status") or "").splitlines():
        key, _, value = line.partition(":")
        if key in ("Uid", "Gid", "Groups", "NoNewPrivs", "Seccomp") or key.startswith("Cap"):
            status[key] = value.strip()
    mounts: list[list[str]] = []
    for line in (_text("/proc/self/mountinfo") or "").splitlines():
        fields = line.split()
        mounts.append([fields[4], fields[5], *fields[fields.index("-") + 1 :][:1]])
    return {
        "status": status,
        "mounts": mounts,
        "interfaces": [name for _, name in socket.if_nameindex()],
        "limits": limits(),
        "attempts": {
            "become_root": _outcome(lambda: os.setuid(0)),
            "signal_runner": _outcome(lambda: os.kill(runner, 0)),
            "read_runner_memory": _outcome(lambda: os.close(os.open(f"/proc/{runner}/mem", os.O_RDONLY))),
            "write_root": _outcome(lambda: os.close(os.open("/.codesdk", os.O_WRONLY | os.O_CREAT, 0o600))),
        },
        "python": sys.version.split()[0],
    }
