"""Finds and kills processes by pid and start time, so that a reused pid is never hit."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

_STATE, _PARENT, _START = 0, 1, 19
"""Fields of /proc/PID/stat after the command's closing bracket."""
POLL_S = 0.02


class Identity(NamedTuple):
    """A process of the current boot."""

    pid: int
    start: int
    """Start time in clock ticks since boot."""


def boot_id() -> str:
    """Return the kernel's id of this boot; pids and start times of another boot are meaningless."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:  # noqa: PTH123 - the shim stays small
        return file.read().strip()


def _stat(pid: int) -> list[bytes] | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - the shim stays small
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return None  # it has ended


def identity(pid: int) -> Identity | None:
    """Return the living process with this pid; None if there is none or it is a zombie."""
    fields = _stat(pid)
    if fields is None or fields[_STATE] in {b"Z", b"X"}:
        return None
    return Identity(pid, int(fields[_START]))


def is_alive(process: Identity) -> bool:
    """Return whether exactly this process still runs."""
    return identity(process.pid) == process


def kill(process: Identity) -> None:
    """Send SIGKILL unless the process has ended. A pidfd keeps its pid from being reused meanwhile."""
    try:
        pidfd = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    try:
        if is_alive(process):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    except ProcessLookupError:
        pass  # it ended meanwhile
    finally:
        os.close(pidfd)


def wait_gone(process: Identity, timeout_s: float) -> bool:
    """Wait for the process to end. Returns False if it is still alive after the timeout."""
    try:
        pidfd = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return True
    try:
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        deadline = time.monotonic() + timeout_s
        while is_alive(process):
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            poll.poll(left * 1000)
        return True
    finally:
        os.close(pidfd)


def pids() -> list[int]:
    """Return all pids."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - names are all that is needed


def pids_of_user(uid: int) -> list[int]:
    """Return the living processes whose real, effective or saved uid is this one."""
    found = []
    for pid in pids():
        try:
            with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:  # noqa: PTH123 - likewise
                lines = dict(line.split(":", 1) for line in file if ":" in line)
        except OSError:
            continue
        if str(uid) in lines["Uid"].split()[:3] and lines["State"].split()[0] not in {"Z", "X"}:
            found.append(pid)
    return found


def with_environment(variable: bytes) -> list[int]:
    """Return this user's living processes that were started with this variable (`NAME=value`)."""
    found = []
    for pid in pids():
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123 - likewise
                if variable in file.read().split(b"\0"):
                    found.append(pid)
        except OSError:
            continue  # another user's process, or it has ended
    return [pid for pid in found if identity(pid) is not None]


def descendants(roots: Iterable[int]) -> list[int]:
    """Return the living descendants of these processes, without the processes themselves."""
    children: dict[int, list[int]] = {}
    alive: set[int] = set()
    for pid in pids():
        fields = _stat(pid)
        if fields is not None:
            children.setdefault(int(fields[_PARENT]), []).append(pid)
            if fields[_STATE] not in {b"Z", b"X"}:
                alive.add(pid)
    found: list[int] = []
    stack = list(roots)
    seen = set(stack)
    while stack:
        for pid in children.get(stack.pop(), ()):
            if pid not in seen:
                seen.add(pid)
                stack.append(pid)
                if pid in alive:
                    found.append(pid)
    return found


def kill_all(find: Callable[[], Iterable[int]], timeout_s: float) -> bool:
    """Kill what `find` returns until it is empty; False after the timeout. Stops all first, so that none can fork."""
    deadline = time.monotonic() + timeout_s
    while True:
        stopped: set[int] = set()
        while fresh := {pid for pid in find() if pid not in stopped}:
            for pid in fresh:
                _signal(pid, signal.SIGSTOP)
            stopped |= fresh
            if time.monotonic() > deadline:
                break
        for pid in stopped:
            _signal(pid, signal.SIGKILL)
        if not stopped:
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)


def kill_user(uid: int, real_uid: int, timeout_s: float) -> bool:
    """Kill every process of a uid that only we use; needs root. One kill(-1) hits them all at once."""
    deadline = time.monotonic() + timeout_s
    while pids_of_user(uid):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                # kill(-1) reaches the processes of the effective uid.
                os.setresuid(real_uid, uid, uid)
                os.kill(-1, signal.SIGKILL)
                code = 0
            finally:
                os._exit(code)
        os.waitpid(child, 0)
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # ended; another user's process may have its pid now
        os.kill(pid, number)
