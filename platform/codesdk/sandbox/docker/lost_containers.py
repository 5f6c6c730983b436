"""Kills containers that the engine lost: it reports them as ended or unknown, but their processes still run.

Happens when an engine is killed while it starts a container: the shim survives, and the restarted engine doesn't know
it. The runner can't be reached again, but its processes keep using the workspace and its disk. They are found in /proc:
the first process of the container's PID namespace has the sandbox's name in its arguments, or it is `runc init`,
waiting to start, with the workspace mounted. A process that fakes these marks is killed too.
"""

from __future__ import annotations

import json
import logging
import os
import select
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

NAME_SETTING = "sandbox"
"""The runner setting with the name of container and volume."""
KILL_TIMEOUT_S = 10.0
"""How long a PID namespace may take to end after its init was killed; some processes wait for disk I/O."""
_PROC = Path("/proc")
_RUNC_INIT = ["runc", "init"]
"""Arguments of `runc` before it executes the container's program."""

_log = logging.getLogger(__name__)


def kill_lost_container(name: str, *, device: Callable[[], str | None] = lambda: None, container: str = "") -> int:
    """Kill the processes of a sandbox that its engine doesn't run; returns the number of PID namespaces killed.

    Works only on this machine and with permission to see its processes, so not for a remote engine or from a container.

    Args:
        name: of container and volume (`spec.container_name`).
        device: loop device of its workspace, if any.
        container: only kill this container id; set it if another container of that name may be starting.
    """
    ended = 0
    for pid in _foreign_processes():
        try:
            descriptor = os.pidfd_open(pid)  # pins the process, so that all reads below are of the same one
        except OSError:
            continue  # it has ended, or permission is denied
        try:
            if _is_namespace_init(pid) and _belongs_to(pid, name, device) and container in _read(pid, "cgroup"):
                _kill(descriptor)
                ended += 1
        except OSError as error:
            _log.warning("process %d of the lost container %s could not be killed: %s", pid, name, error)
        finally:
            os.close(descriptor)
    if ended:
        _log.warning("killed the processes of %s, a container that the engine had lost", name)
    return ended


def _kill(descriptor: int) -> None:
    """Kill the namespace's init and wait: its pidfd becomes readable after the whole namespace has ended."""
    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    ended = select.poll()  # select() supports no descriptor above 1023
    ended.register(descriptor, select.POLLIN)
    if not ended.poll(KILL_TIMEOUT_S * 1000):
        raise TimeoutError(f"it has not ended within {KILL_TIMEOUT_S:g} s")


def _foreign_processes() -> Iterator[int]:
    """Yield the visible processes in other PID namespaces."""
    ours = (_PROC / "self/ns/pid").stat().st_ino
    for entry in os.scandir(_PROC):
        if entry.name.isdecimal():
            with suppress(OSError):
                if os.stat(f"{entry.path}/ns/pid").st_ino != ours:  # noqa: PTH116 (a tenth of the time, for each process)
                    yield int(entry.name)


def _is_namespace_init(pid: int) -> bool:
    """Return whether the process is PID 1 of its namespace."""
    return any(line.startswith("NSpid:") and line.split()[-1] == "1" for line in _read(pid, "status").splitlines())


def _belongs_to(pid: int, name: str, device: Callable[[], str | None]) -> bool:
    argv = _read(pid, "cmdline").rstrip("\0").split("\0")
    return (name in argv[-1] and _sandbox_name(argv[-1]) == name) or (
        argv == _RUNC_INIT and _mounts_writable(pid, name, device())
    )


def _sandbox_name(settings: str) -> str:
    """Return the sandbox name in the runner's settings."""
    try:
        found = json.loads(settings)
    except (ValueError, RecursionError):  # another program's arguments
        return ""
    return str(found.get(NAME_SETTING, "")) if isinstance(found, dict) else ""


def _mounts_writable(pid: int, name: str, device: str | None) -> bool:
    """Return whether the process has the workspace mounted writable; sandboxes that share it mount it read-only."""
    for line in _read(pid, "mountinfo").splitlines():
        # proc(5): id, parent, major:minor, root within the file system, place, options, …, "-", type, source, …
        mount, _, kind = line.partition(" - ")
        root, options, source = mount.split()[3], mount.split()[5], kind.split()[1]
        if "rw" in options.split(",") and (source == device or root.endswith(f"/{name}/_data")):
            return True
    return False


def _read(pid: int, what: str) -> str:
    try:
        return (_PROC / str(pid) / what).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""  # it ended meanwhile, or permission is denied
