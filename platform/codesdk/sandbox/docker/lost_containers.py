"""Sandboxes that their engine has forgotten: it says that the container ended, or knows none, and its processes live.

So it is where an engine is killed or stopped while it starts a container: the shim outlives it, and the engine that comes
back finds a container without one. Nobody could reach the runner again, but what it runs would go on in the workspace,
counted by nobody, and keep its disk for good. The kernel knows them: the first process of such a container, in a process
namespace of its own, has the sandbox's name in its arguments, where the engine put it; or it is `runc`, which has made the
container and waits to be told to start it, with the workspace mounted. Who says the same of itself is killed as well.
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
"""The runner's setting that names container and volume."""
KILL_TIMEOUT_S = 10.0
"""How long all processes of a namespace may take to end after its first one was killed: some wait for a disk."""
_PROC = Path("/proc")
_RUNC_INIT = ["runc", "init"]
"""What `runc` calls itself until it is told to start the container's program."""

_log = logging.getLogger(__name__)


def kill_lost_container(name: str, *, device: Callable[[], str | None] = lambda: None, container: str = "") -> int:
    """Kill what lives of the sandbox of that name, which its engine does not run; how many first processes that were.

    Sees this machine, if this user may; not another one's engine, nor beyond the container that a worker runs in.

    Args:
        name: of container and volume (`spec.container_name`).
        device: the one that holds its workspace, if one does.
        container: only of this one, by its id: where another of that name may be starting.
    """
    ended = 0
    for pid in _foreign_processes():
        try:
            descriptor = os.pidfd_open(pid)  # what is read from here on is of one and the same process
        except OSError:
            continue  # it has ended, or this user may not
        try:
            if _is_namespace_init(pid) and _belongs_to(pid, name, device) and container in _read(pid, "cgroup"):
                _kill(descriptor)
                ended += 1
        except OSError as error:
            _log.warning("process %d of %s, which its engine has forgotten, could not be ended: %s", pid, name, error)
        finally:
            os.close(descriptor)
    if ended:
        _log.warning("the engine had forgotten %s, whose processes still ran: they were ended", name)
    return ended


def _kill(descriptor: int) -> None:
    """Kill it, and wait: its descriptor is readable once it has ended, and that is after all others of its namespace."""
    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    ended = select.poll()  # select() takes no descriptor above 1023
    ended.register(descriptor, select.POLLIN)
    if not ended.poll(KILL_TIMEOUT_S * 1000):
        raise TimeoutError(f"it has not ended within {KILL_TIMEOUT_S:g} s")


def _foreign_processes() -> Iterator[int]:
    """Processes in another process namespace than ours, as far as this user may see them."""
    ours = (_PROC / "self/ns/pid").stat().st_ino
    for entry in os.scandir(_PROC):
        if entry.name.isdecimal():
            with suppress(OSError):
                if os.stat(f"{entry.path}/ns/pid").st_ino != ours:  # noqa: PTH116 (a tenth of the time, for each process)
                    yield int(entry.name)


def _is_namespace_init(pid: int) -> bool:
    """Whether it is the first process of its namespace."""
    return any(line.startswith("NSpid:") and line.split()[-1] == "1" for line in _read(pid, "status").splitlines())


def _belongs_to(pid: int, name: str, device: Callable[[], str | None]) -> bool:
    said = _read(pid, "cmdline").rstrip("\0").split("\0")
    return (name in said[-1] and _sandbox_name(said[-1]) == name) or (
        said == _RUNC_INIT and _mounts_writable(pid, name, device())
    )


def _sandbox_name(settings: str) -> str:
    """The sandbox that the runner's settings name."""
    try:
        said = json.loads(settings)
    except (ValueError, RecursionError):  # anybody's process may say anything
        return ""
    return str(said.get(NAME_SETTING, "")) if isinstance(said, dict) else ""


def _mounts_writable(pid: int, name: str, device: str | None) -> bool:
    """Whether it has that workspace mounted to write; who borrows it has it to read."""
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
        return ""  # it ended meanwhile, or is not ours to read
