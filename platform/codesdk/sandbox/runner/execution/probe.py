"""Reports what a process with a tool's rights sees and may do. The worker compares it with the requested isolation."""

from __future__ import annotations

import _socket
import errno
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_LIMITS = {
    # limit: cgroup v2 file, cgroup v1 file
    "memory_bytes": ("memory.max", "memory/memory.limit_in_bytes"),
    "pids": ("pids.max", "pids/pids.max"),
    "cpu": ("cpu.max", "cpu/cpu.cfs_quota_us"),
}
_OOM_KILLS = (("memory.events", b"oom_kill "), ("memory/memory.oom_control", b"oom_kill "))
CGROUP = "/sys/fs/cgroup"
_KILL = 9


def _text(path: str) -> str | None:
    try:
        with open(path, "rb") as file:
            return file.read(1 << 20).decode("utf-8", "replace")
    except OSError:
        return None


class OomKills:
    """Counts the sandbox's OOM kills, from a kernel file that is held open."""

    def __init__(self) -> None:
        self._fd, self._key = -1, b""
        for name, key in _OOM_KILLS:
            try:
                self._fd, self._key = os.open(CGROUP + "/" + name, os.O_RDONLY | os.O_CLOEXEC), key
            except OSError:
                continue
            return

    def count(self) -> int | None:
        """Return the current count; None where the kernel doesn't report one."""
        if self._fd < 0:
            return None
        try:
            for line in os.pread(self._fd, 4096, 0).splitlines():
                if line.startswith(self._key):
                    return int(line[len(self._key) :])
        except (OSError, ValueError):
            pass  # retried at the next exec
        return None


def limits() -> dict[str, str | None]:
    """Return the cgroup's limits as the kernel reports them; None for each that it doesn't show (gVisor)."""
    found: dict[str, str | None] = {}
    for word, names in _LIMITS.items():
        texts = (_text(CGROUP + "/" + name) for name in names)
        found[word] = next((text.strip() for text in texts if text is not None), None)
    return found


def rlimits() -> dict[str, str]:
    """Return this process's soft limits by the kernel's names: a number or `unlimited`."""
    found: dict[str, str] = {}
    for line in (_text("/proc/self/limits") or "").splitlines()[1:]:
        found[line[:26].strip()] = line[26:47].strip()
    return found


def _outcome(action: Any) -> str:
    try:
        action()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, "ERROR")
    return "ALLOWED"


def _other_exec(other_pid: int) -> dict[str, str]:
    """Try to reach a process as if it were another exec's."""
    folder = f"/proc/{other_pid}/"
    try:
        return {
            "memory": _outcome(lambda: os.close(os.open(folder + "mem", os.O_RDWR))),
            "environment": _outcome(lambda: os.close(os.open(folder + "environ", os.O_RDONLY))),
            "descriptors": _outcome(lambda: os.readlink(folder + "fd/0")),
        }
    finally:
        os.kill(other_pid, _KILL)


def observe(runner: int, other_pid: int) -> dict[str, Any]:
    """Report ids, mounts, interfaces and limits, and try to attack the runner. Call it with the tool's ids.

    `other_pid`: a process with the same ids that, like another exec's, is no relative. It is killed at the end.
    """
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
        "interfaces": [name for _, name in _socket.if_nameindex()],
        "uid_map": _text("/proc/self/uid_map") or "",
        "gid_map": _text("/proc/self/gid_map") or "",
        "limits": limits(),
        "rlimits": rlimits(),
        "attempts": {
            "become_root": _outcome(lambda: os.setuid(0)),
            "signal_runner": _outcome(lambda: os.kill(runner, 0)),
            "read_runner_memory": _outcome(lambda: os.close(os.open(f"/proc/{runner}/mem", os.O_RDONLY))),
            "write_root": _outcome(lambda: os.close(os.open("/.codesdk", os.O_WRONLY | os.O_CREAT, 0o600))),
        },
        "other_exec": _other_exec(other_pid),
        "python": sys.version.split()[0],
    }
