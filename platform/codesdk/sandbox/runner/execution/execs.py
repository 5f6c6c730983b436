"""All execs of a sandbox, and the pool of idle subreapers."""

from __future__ import annotations

import os
import time

from codesdk.sandbox.runner.event_loop import EventLoop
from codesdk.sandbox.runner.execution import probe
from codesdk.sandbox.runner.execution.exec_lifecycle import Exec, Key, SubreaperHandle
from codesdk.sandbox.runner.execution.spool import Budget, FlowControlledSpool, Spool
from codesdk.sandbox.runner.execution.subreaper import NO_PROCESS, ForkServer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from codesdk.sandbox.runner.execution.exec_lifecycle import SignalTree

MAX_RUNNING = 24
"""Maximum concurrent execs: each needs a subreaper within the pids limit (see `spec.RESERVED_PIDS`)."""
MAX_FREE = 2
"""Idle subreapers kept for the next execs."""
KEEP_FREE_S = 20.0
"""Subreapers and fork server, half of an idle sandbox's memory, are stopped after this long without execs."""
_SMALL = 256 * 1024
"""With more stored output the fork server isn't stopped: the next one would share, and so retain, these pages."""


class Execs:
    """All execs of the sandbox, by (call, attempt)."""

    REMEMBERED = 16_384
    """How many keys of acknowledged execs are kept, so that a repeated start is refused."""

    def __init__(
        self,
        loop: EventLoop,
        fork_server: ForkServer,
        kill: SignalTree,
        spool_bytes: int,
        uid: int,
        *,
        kills_orphans: bool = False,
    ) -> None:
        """`kills_orphans`: before each result, kill the processes that belong to no running exec."""
        self._uid = uid
        self._kills_orphans = kills_orphans
        self._loop = loop
        self._fork_server = fork_server
        self._kill = kill
        self._budget = Budget(spool_bytes)
        self._oom = probe.OomKills()
        self._execs: dict[Key, Exec] = {}
        self._running: dict[Key, Exec] = {}
        self._acknowledged: dict[Key, None] = {}
        self._free: list[SubreaperHandle] = []
        self._barrier_fd = -1
        self._has_no_escapees = True
        """False once an ended exec may have left processes: its subreaper was lost, or escaped processes survived."""
        self._used = time.monotonic()

    def get(self, key: Key) -> Exec | None:
        """Return the exec, running or ended; None once acknowledged."""
        return self._execs.get(key)

    def was_acknowledged(self, key: Key) -> bool:
        """Return whether the exec ended and its result was acknowledged."""
        return key in self._acknowledged

    def running(self) -> list[Key]:
        """Return the keys of running execs."""
        return list(self._running)

    def subreapers(self) -> list[int | None]:
        """Return the pids of the subreapers whose exec has not ended, None for one not reported yet. Thread-safe."""
        return [item.subreaper for item in list(self._running.values()) if not item.leader_ended]

    def full(self) -> bool:
        """Return whether the limit of concurrent execs is reached."""
        return len(self._running) >= MAX_RUNNING

    def start(self, key: Key, request: dict[str, Any], stdin: bytes, keep: int) -> Exec:
        """Start an exec. The caller checks that the key is new and `full` is False."""
        handle = self._acquire_handle()
        spool = (FlowControlledSpool if request.get("flow") else Spool)(keep, self._budget)
        # Lowered limits cannot be raised again for the next exec.
        on_freed = SubreaperHandle.dismiss if "limits" in request else self._on_handle_freed
        found = Exec(
            key, request, stdin, self._loop, self._kill, spool, self._on_exec_ended, on_freed, self._oom, self._uid,
            kills_orphans=self._kills_orphans,
        )  # fmt: skip
        for other in self._running.values():
            other.mark_overlapped()
            found.mark_overlapped()
        try:
            found.run(handle, self._start_barrier(request))
        except OSError:
            on_freed(handle)
            raise
        self._execs[key] = self._running[key] = found
        return found

    def _start_barrier(self, request: dict[str, Any]) -> list[int]:
        """Set `is_first` if no tool process exists, and make later starts wait for that one.

        A subreaper that starts a tool alone has the tool's real uid meanwhile (see `spawn`). It holds one end of a pipe
        until it is root again; later subreapers get the other end and wait for EOF.
        """
        if not self._running and self._has_no_escapees:
            if self._barrier_fd >= 0:
                os.close(self._barrier_fd)
            self._barrier_fd, theirs = os.pipe()
            request["is_first"] = True
            return [theirs]
        return [os.dup(self._barrier_fd)] if self._barrier_fd >= 0 else []

    def _acquire_handle(self) -> SubreaperHandle:
        self._used = time.monotonic()
        while self._free:
            handle = self._free.pop()
            if handle.is_idle():
                return handle
            handle.dismiss()  # it was OOM-killed while idle
        return SubreaperHandle(self._fork_server)

    def _on_exec_ended(self, key: Key, may_live_on: bool) -> None:
        self._has_no_escapees = self._has_no_escapees and not may_live_on
        self._running.pop(key, None)
        self._used = time.monotonic()

    def _on_handle_freed(self, handle: SubreaperHandle) -> None:
        if len(self._free) < MAX_FREE:
            self._free.append(handle)
        else:
            handle.dismiss()

    def prepare(self) -> None:
        """Fork a subreaper in advance for the first exec.

        Raises:
            OSError: no process available.
        """
        if not self._free and not self._running:
            self._used = time.monotonic()
            self._free.append(SubreaperHandle(self._fork_server))

    def acknowledge(self, key: Key) -> bool:
        """Forget an ended exec. Returns False if it is unknown or running."""
        found = self._execs.get(key)
        if found is None or found.result is None:
            return key in self._acknowledged
        found.spool.release()
        del self._execs[key]
        self._acknowledged[key] = None
        while len(self._acknowledged) > self.REMEMBERED:
            del self._acknowledged[next(iter(self._acknowledged))]
        return True

    def next_deadline(self) -> float | None:
        """Return when `tick` is due, on the monotonic clock."""
        times = [item.deadline for item in self._running.values() if item.deadline is not None]
        if self._can_shut_down():
            times.append(self._used + KEEP_FREE_S)
        return min(times) if times else None

    def _can_shut_down(self) -> bool:
        is_up = bool(self._free) or self._fork_server.pid != NO_PROCESS
        return is_up and not self._running and self._budget.used <= _SMALL

    def tick(self) -> None:
        """Handle deadlines that have passed."""
        now = time.monotonic()
        if self._can_shut_down() and now - self._used >= KEEP_FREE_S:
            for handle in self._free:
                handle.dismiss()
            self._free.clear()
            self._fork_server.shut_down()
        for item in list(self._running.values()):
            if item.deadline is not None and item.deadline <= now:
                item.on_deadline()

    def egress_execs(self) -> list[tuple[int, str, int, str]]:
        """Return the running execs with egress: subreaper pid, call, attempt, credential."""
        return [
            (item.subreaper, key[0], key[1], item.credential)
            for key, item in self._running.items()
            if item.credential and item.subreaper is not None
        ]

    def states(self) -> list[dict[str, Any]]:
        """Return the states of all unacknowledged execs."""
        return [item.state() for item in self._execs.values()]
