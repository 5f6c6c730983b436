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
    """One process of this boot."""

    pid: int
    start: int
    """Clock ticks from boot to its start."""


def boot_id() -> str:
    """The kernel's id of this boot: pids and start times of another say nothing."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:  # noqa: PTH123 - the shim stays small
        return file.read().strip()


def _stat(pid: int) -> list[bytes] | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - the shim stays small
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return None  # it has ended


def identity(pid: int) -> Identity | None:
    """The living process of that number; None where there is none, or only a zombie."""
    fields = _stat(pid)
    if fields is None or fields[_STATE] in {b"Z", b"X"}:
        return None
    return Identity(pid, int(fields[_START]))


def is_alive(process: Identity) -> bool:
    """Whether exactly this process still runs."""
    return identity(process.pid) == process


def kill(process: Identity) -> None:
    """SIGKILL, unless it has ended: held by a descriptor, so its number cannot change hands in between."""
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
    """Wait for its end; False when it still lives."""
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
    """Every process number."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - names are all that is needed


def pids_of_user(uid: int) -> list[int]:
    """Living processes whose real, effective or saved uid is this one."""
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
    """Living processes of this user that were started with this variable (`NAME=value`) in their environment."""
    found = []
    for pid in pids():
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123 - likewise
                if variable in file.read().split(b"\0"):
                    found.append(pid)
        except OSError:
            continue  # another user's, or it has ended
    return [pid for pid in found if identity(pid) is not None]


def descendants(roots: Iterable[int]) -> list[int]:
    """Living descendants of these processes, without them."""
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
    """Kill whatever `find` finds until it finds nothing: stopped first, so that nothing forks while others are killed."""
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
    """As root: kill every process of a uid that is only ours. One call of the kernel hits them all at once."""
    deadline = time.monotonic() + timeout_s
    while pids_of_user(uid):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                # The effective uid decides whom it may hit; the real one keeps the targets from hitting it.
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
    with contextlib.suppress(ProcessLookupError, PermissionError):  # ended; its number may be another user's by now
        os.kill(pid, number)
