"""Enforces a workspace quota where the file system can't: counts usage and ends the execs that exceed it.

Counting takes time, so the monitor first reads the file system's own usage, which is one system call. While that has
grown by less than the room left at the last count, the quota can't be exceeded. Between two reads a tool can write
freely; docs/explanation/sandbox-life.md gives the size of that overshoot.
"""

from __future__ import annotations

import errno
import os
import stat
import time

from codesdk.sandbox.runner.workspace.root import OperationRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from codesdk.sandbox.runner.event_loop import SerialExecutor
    from codesdk.sandbox.runner.execution.exec_lifecycle import Key
    from codesdk.sandbox.runner.execution.execs import Execs
    from codesdk.sandbox.runner.workspace.root import Root

CHECK_INTERVAL_S = 0.05
"""Seconds between reads of the file system's usage while something runs."""
RECOUNT_INTERVAL_S = 2.0
"""Longest interval between counts while something runs; ten times the last count's duration if that is longer."""
MAX_COUNTED = 2_000_000
MAX_OVERSHOOT = (1 << 30, 100_000)
"""Bytes and entries over the cap, or the cap again if that is larger; beyond them no exec may start. Each exec started
in a full workspace can write a little before the next count; thousands of them would fill the disk."""
_ENTER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_TRIES = 3
_BLOCK = 512
WRITE_OPERATIONS = frozenset(("write", "mkdir", "import", "upload.open", "upload.append", "upload.commit"))
"""File operations that need space."""


class QuotaMonitor:
    """Enforces a counted quota. `check` is thread-safe; other methods run on the loop, counts on their own thread."""

    def __init__(
        self, cap: dict[str, Any], execs: Execs, workspace: Callable[[], Root], executor: Callable[[], SerialExecutor]
    ) -> None:
        """`cap`: `bytes` and `inodes`."""
        self._cap = (int(cap["bytes"]), int(cap["inodes"]))
        self._hard_cap = (
            self._cap[0] + max(self._cap[0], MAX_OVERSHOOT[0]),
            self._cap[1] + max(self._cap[1], MAX_OVERSHOOT[1]),
        )
        self._execs = execs
        self._workspace = workspace
        self._executor = executor
        self._used = (0, 0)
        self._base = (0, 0)  # the file system's usage at the last count
        self._allowed: dict[Key, tuple[int, int] | None] = {}
        self._counting = False
        self._recount_wanted = True
        self._check_soon = False
        self._next_check = 0.0
        self._next_count = 0.0

    def next_deadline(self) -> float | None:
        """Return when to measure again; None while nothing runs."""
        return self._next_check if self._execs.running() or self._recount_wanted or self._check_soon else None

    def tick(self) -> None:
        """Measure if due and something runs."""
        running = self._execs.running()
        self._recount_wanted |= self._is_full() and len(self._allowed) > len(running)  # ended execs may have deleted
        for key in list(self._allowed):
            if key not in running:
                del self._allowed[key]
        now = time.monotonic()
        fresh = [key for key in running if key not in self._allowed]
        if not (fresh or self._recount_wanted) and (now < self._next_check or not (running or self._check_soon)):
            return
        self._next_check, self._check_soon = now + CHECK_INTERVAL_S, False
        grown = [max(0, new - old) for new, old in zip(self._file_system(), self._base)]
        reached = (self._used[0] + grown[0], self._used[1] + grown[1])  # upper bound
        for key in fresh:
            # An exec may start in a full workspace to delete files, but may not add to the usage at its start.
            self._allowed[key] = None if _exceeds(reached, self._cap) or self._is_full() else self._cap
        bounds = [*self._allowed.values(), self._cap] if not self._is_full() else list(self._allowed.values())
        needs_count = any(bound is None or _exceeds(reached, bound) for bound in bounds)
        if self._recount_wanted or needs_count or (running and now >= self._next_count):
            self._count()

    def _is_full(self) -> bool:
        return self._used[0] >= self._cap[0] or self._used[1] >= self._cap[1]

    def exec_blocker(self) -> str:
        """Return why no exec may start now; empty if one may."""
        if not _exceeds(self._used, self._hard_cap):
            return ""
        self._recount_wanted = True  # file operations may have made room
        return "the workspace is far over its cap; delete files with file operations, then try again"

    def check(self, operation: str) -> None:
        """Refuse operations that need space if there is none. Thread-safe.

        Raises:
            OperationRefused: NO_SPACE.
        """
        self._check_soon = True
        if operation == "delete" and self._is_full():
            self._recount_wanted = True  # the same thread counts after the deletion
        if operation in WRITE_OPERATIONS and self._is_full():
            self._recount_wanted = True  # a tool may have made room
            raise OperationRefused("NO_SPACE", "the workspace is full; delete files to continue")

    def _file_system(self) -> tuple[int, int]:
        about = os.fstatvfs(self._workspace().fd)
        return (about.f_blocks - about.f_bfree) * about.f_frsize, about.f_files - about.f_ffree

    def _count(self) -> None:
        if self._counting:
            return
        self._counting, self._recount_wanted = True, False
        base, began, running = self._file_system(), time.monotonic(), self._execs.running()

        def work() -> Callable[[], None]:
            found = None
            for _ in range(_TRIES):
                try:
                    found = measure_usage(self._workspace().fd)
                    break
                except OSError as error:
                    if error.errno not in (errno.ESTALE, errno.EMFILE, errno.ENFILE):
                        os.write(2, ("codesdk runner, quota: " + repr(error) + "\n").encode())
            return lambda: self._on_counted(found, base, running, time.monotonic() - began)

        self._executor().submit(work)

    def _on_counted(
        self, found: tuple[int, int] | None, base: tuple[int, int], running: list[Key], took_s: float
    ) -> None:
        """Record a count and end execs that exceed their bound. `running`: execs that ran when the count began."""
        self._counting = False
        if found is None:
            # Directories keep moving during the count: attribute all of the file system's growth to this workspace.
            now = self._file_system()
            more = [max(0, new - old) for new, old in zip(now, self._base)]
            found, base = (self._used[0] + more[0], self._used[1] + more[1]), now
        self._used, self._base = found, base
        self._next_count = time.monotonic() + max(RECOUNT_INTERVAL_S, 10 * took_s)
        for key, allowed in list(self._allowed.items()):
            if allowed is None and key in running:
                self._allowed[key] = (max(self._cap[0], found[0]), max(self._cap[1], found[1]))
            elif allowed is None:
                self._recount_wanted = True
            elif _exceeds(found, allowed):
                run = self._execs.get(key)
                if run is not None:
                    run.end("disk_full", at_once=True)


def _exceeds(used: tuple[int, int], bound: tuple[int, int]) -> bool:
    return used[0] > bound[0] or used[1] > bound[1]


def measure_usage(root: int) -> tuple[int, int]:
    """Count bytes and entries below an open directory of any depth with two descriptors; goes up by a verified `..`.

    Raises:
        OSError: ESTALE if a directory was moved during the count.
    """
    total, entries = 0, 0
    seen: set[int] = set()
    above: list[tuple[int, int]] = []
    rest: list[list[str]] = []
    fd = os.open(".", _ENTER, dir_fd=root)
    try:
        while True:
            below, size, number = _scan(fd, seen)
            total, entries = total + size, entries + number
            about = os.fstat(fd)
            above.append((about.st_dev, about.st_ino))
            rest.append(below)
            down = -1
            while down < 0:
                if entries > MAX_COUNTED:
                    return total, entries
                if rest[-1]:
                    down = _enter(rest[-1].pop(), fd)
                    continue
                rest.pop()
                above.pop()
                if not rest:
                    return total, entries
                up = os.open("..", _ENTER, dir_fd=fd)
                os.close(fd)
                fd = up
                about = os.fstat(fd)
                if (about.st_dev, about.st_ino) != above[-1]:
                    raise OSError(errno.ESTALE, "a directory was moved while it was counted")
            os.close(fd)
            fd = down
    finally:
        os.close(fd)


def _scan(fd: int, seen: set[int]) -> tuple[list[str], int, int]:
    below: list[str] = []
    size = number = 0
    with os.scandir(fd) as entries:
        for entry in entries:
            try:
                about = entry.stat(follow_symlinks=False)
            except OSError:
                continue  # deleted during the count
            number += 1
            if stat.S_ISDIR(about.st_mode):
                below.append(entry.name)
            elif about.st_nlink > 1:
                if about.st_ino in seen:
                    number -= 1
                    continue
                seen.add(about.st_ino)
            size += about.st_blocks * _BLOCK
    return below, size, number


def _enter(name: str, directory: int) -> int:
    """Open a directory; returns -1 if it is gone. Makes an unreadable one readable for a moment."""
    try:
        return os.open(name, _ENTER, dir_fd=directory)
    except PermissionError:
        return _enter_unreadable(name, directory)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return -1
        raise


def _enter_unreadable(name: str, directory: int) -> int:
    try:
        held = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    except (FileNotFoundError, NotADirectoryError):
        return -1  # it was moved or replaced
    path = "/proc/self/fd/" + str(held)  # the open directory, even if its name was reused
    try:
        mode = stat.S_IMODE(os.fstat(held).st_mode)
        os.chmod(path, mode | stat.S_IRWXU)
        try:
            return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        finally:
            os.chmod(path, mode)
    finally:
        os.close(held)
