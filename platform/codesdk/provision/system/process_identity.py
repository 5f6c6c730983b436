"""Identifies a process by pid and start time, because the kernel reuses pids."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

POLL_S = 0.05
STAT_STATE, STAT_STARTTIME = 0, 19
"""Fields of /proc/<pid>/stat after the closing bracket of the name (proc(5): fields 3 and 22)."""


@dataclass(frozen=True)
class ProcessIdentity:
    """A process's pid and start time in clock ticks since boot. Stays valid after this program restarts."""

    pid: int
    started: int

    @property
    def alive(self) -> bool:
        """Whether this process still runs. A zombie doesn't."""
        return mark(self.pid) == self

    def wait(self, deadline_s: float) -> bool:
        """Wait for the process to end; return whether it did in time."""
        until = time.monotonic() + deadline_s
        while self.alive:
            if time.monotonic() > until:
                return False
            time.sleep(POLL_S)
        return True

    def terminate(self, grace_s: float) -> None:
        """SIGTERM, wait `grace_s` seconds, SIGKILL. Never signals another process."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if not self.alive:
                return
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                return
            self.wait(grace_s)

    def kill(self) -> bool:
        """SIGKILL this process, even if it is stopped. Returns False if it had ended or we may not signal it."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except OSError:
            return False
        try:
            if not self.alive:  # check again while the pidfd is open: from here on the pid can't be reused
                return False
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        except OSError:
            return False
        finally:
            os.close(descriptor)
        return True


def pid_namespace() -> str:
    """Return an id of the pid namespace: this boot and this container. Empty if unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def mark(pid: int) -> ProcessIdentity | None:
    """Return the identity of the process with this pid; None if there is none or it is a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[STAT_STATE] in "ZX" else ProcessIdentity(pid, int(fields[STAT_STARTTIME]))


def name(pid: int) -> str:
    """Return the kernel's short name of the process (at most 15 characters); empty if there is none."""
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def pid_in(text: str) -> int | None:
    """Return the pid in a pid file's text; None if it has none."""
    word = text.strip()
    return int(word) if word.isdecimal() and int(word) > 0 else None
