"""Which process a pid means: a number alone is reused, a number with its start time is not."""

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
    """A process that stays recognisable after a restart of ours: pid and start time in clock ticks since boot."""

    pid: int
    started: int

    @property
    def alive(self) -> bool:
        """Whether that very process still runs (a zombie does not)."""
        return mark(self.pid) == self

    def wait(self, deadline_s: float) -> bool:
        """Whether it ended in time."""
        until = time.monotonic() + deadline_s
        while self.alive:
            if time.monotonic() > until:
                return False
            time.sleep(POLL_S)
        return True

    def terminate(self, grace_s: float) -> None:
        """SIGTERM, `grace_s` seconds, SIGKILL; only ever this very process."""
        for sign in (signal.SIGTERM, signal.SIGKILL):
            if not self.alive:
                return
            try:
                os.kill(self.pid, sign)
            except ProcessLookupError:
                return
            self.wait(grace_s)

    def kill(self) -> bool:
        """SIGKILL to this very process, also one that is stopped; False: it had ended, or is not ours to kill."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except OSError:
            return False
        try:
            if not self.alive:  # asked with the pid held: nobody can get it from here on
                return False
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        except OSError:
            return False
        finally:
            os.close(descriptor)
        return True


def pid_namespace() -> str:
    """Where a pid means what it means here: this boot of this machine, and this container of it; empty if nobody tells."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def mark(pid: int) -> ProcessIdentity | None:
    """The process that has this pid now; None where there is none, or only its remains."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[STAT_STATE] in "ZX" else ProcessIdentity(pid, int(fields[STAT_STARTTIME]))


def name(pid: int) -> str:
    """The kernel's short name of the process (at most 15 characters); empty where there is none."""
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def pid_in(text: str) -> int | None:
    """The pid that a pid file holds; None where it holds none."""
    word = text.strip()
    return int(word) if word.isdecimal() and int(word) > 0 else None
