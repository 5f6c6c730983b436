"""Finds and kills processes by pid and start time, so that a reused pid is never hit."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from codesdk.sandbox.runner.execution import process_tree

_START = 19
"""Field of /proc/PID/stat after the command's closing bracket."""
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


def identity(pid: int) -> Identity | None:
    """Return the living process with this pid; None if there is none or it is a zombie."""
    process = process_tree.read_process(pid)
    if process is None or process[1] == process_tree.DEAD:
        return None
    fields = process_tree.read_stat(f"/proc/{pid}")
    return Identity(pid, int(fields[_START])) if fields is not None else None


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


def pids_of_user(uid: int) -> list[int]:
    """Return the living processes whose real, effective or saved uid is this one."""
    return list(process_tree.states_of_user(uid))


def with_environment(variable: bytes) -> list[int]:
    """Return this user's living processes that were started with this variable (`NAME=value`)."""
    found = []
    for pid in process_tree.all_pids():
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123 - likewise
                if variable in file.read().split(b"\0"):
                    found.append(pid)
        except OSError:
            continue  # another user's process, or it has ended
    return [pid for pid in found if identity(pid) is not None]


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
                # kill(-1) reaches the processes of the effective uid. The tool's must not be the saved one: it could kill us.
                os.setresuid(real_uid, uid, 0)
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
