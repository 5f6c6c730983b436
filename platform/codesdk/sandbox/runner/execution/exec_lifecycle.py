"""The lifecycle of one exec: start, signals, end. Keeps output and result until they are acknowledged."""

from __future__ import annotations

import _socket
import os
import select
import time

from codesdk.sandbox.runner.event_loop import EventLoop
from codesdk.sandbox.runner.execution import probe
from codesdk.sandbox.runner.execution.spool import STREAMS, Spool
from codesdk.sandbox.runner.execution.stdio import Stdio
from codesdk.sandbox.runner.execution.subreaper import ForkServer, send_request
from codesdk.sandbox.runner.protocol import wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    SignalTree = Callable[[int, int, Callable[[], None]], None]
    """(subreaper, signal, done): signal every process below that subreaper, then call `done` on the loop."""

_DRAIN_S = 0.25
"""How long to keep reading output after the tree has ended while another process still holds the pipe open."""
_KILL_RETRY_S = 0.2

_KILL, _TERM = 9, 15
Key = tuple[str, int]


class SubreaperHandle:
    """The runner's end of a subreaper: its pid and control socket. Idle between execs."""

    def __init__(self, fork_server: ForkServer) -> None:
        self.control, theirs = _socket.socketpair()
        self.pid: int | None = None
        """None until the subreaper has reported it."""
        try:
            fork_server.subreaper(theirs)
        finally:
            theirs.close()

    def is_idle(self) -> bool:
        """Return whether the subreaper is alive and idle: at most its pid report is unread."""
        try:
            report = self.control.recv(1 << 12, _socket.MSG_PEEK | _socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        return report.count(b"\n") == 1 and report.endswith(b"\n")

    def dismiss(self) -> None:
        """Close the socket, which makes the subreaper exit."""
        self.control.close()


class Exec:
    """One exec and its process tree. All methods run on the loop's thread."""

    def __init__(
        self,
        key: Key,
        request: dict[str, Any],
        stdin: bytes,
        loop: EventLoop,
        kill: SignalTree,
        spool: Spool,
        on_end: Callable[[Key, bool], None],
        on_free: Callable[[SubreaperHandle], None],
        oom: probe.OomKills,
        uid: int,
        *,
        kills_orphans: bool = False,
    ) -> None:
        self.key = key
        self.spool = spool
        self.result: dict[str, Any] | None = None
        self.waiting: list[Callable[[bool], None]] = []
        self.credential = str(request.get("credential", ""))
        """Credential in the exec's proxy URL; empty without egress."""
        self._request = request
        self._stdin = stdin
        self._uid = uid
        self._kills_orphans = kills_orphans
        self.stdio = Stdio(loop, spool, self._finish_if_over)
        self._loop = loop
        self._kill = kill
        self._on_end = on_end
        self._on_free = on_free
        self._overlapped = False
        self._phase = "run"
        self._end_reason: str | None = None
        self._pending_signal: int | None = None
        self._signal_in_flight = False
        self._leader: int | None = None
        self._failed = ""
        self._usage: dict[str, Any] | None = None
        self._is_lost = False
        self._has_escaped = False
        self._lines = b""
        self._started = time.monotonic()
        self._oom = oom
        self._oom_before = oom.count()
        self.deadline: float | None = self._started + float(request["timeout_s"])

    def run(self, handle: SubreaperHandle, barrier: list[int]) -> None:
        """Send the request to the subreaper and watch it. `barrier`: descriptors to pass on; closed here.

        Raises:
            OSError: no descriptors available; nothing was started.
        """
        try:
            theirs = self._open()
        except OSError:
            for fd in barrier:
                os.close(fd)
            raise
        self._handle = handle
        handle.control.setblocking(True)
        try:
            send_request(handle.control, self._request, theirs, barrier)
        except OSError:
            pass  # the subreaper died; `_on_control` handles the EOF of its socket
        finally:
            for fd in theirs + barrier:
                os.close(fd)
        handle.control.setblocking(False)
        self._loop.watch(handle.control.fileno(), select.POLLIN, self._on_control)
        self.stdio.begin(self._stdin, bool(self._request.get("stdin_open")))
        self._stdin = b""
        self.stdio.watch()

    def _open(self) -> list[int]:
        size = self._request.get("pty")
        if size is None:
            return self.stdio.open_pipes(bool(self._stdin or self._request.get("stdin_open")))
        self._request["env"].setdefault("TERM", "xterm-256color")
        theirs, self._request["tty"] = self.stdio.open_terminal(size, self._uid)
        return theirs

    # -- events ---------------------------------------------------------------------------------------------------

    def _on_control(self, fd: int, _: int = 0) -> None:
        try:
            data = self._handle.control.recv(1 << 16)
        except BlockingIOError:
            return
        *lines, self._lines = (self._lines + data).split(b"\n")
        for line in lines:
            self._on_message(wire.load_json(line))
        if not data:
            self._loop.forget(fd)
            self._on_subreaper_lost()
        self._finish_if_over()

    def _on_message(self, words: dict[str, Any]) -> None:
        if "subreaper" in words:
            self._handle.pid = words["subreaper"]
            if self._pending_signal is not None:
                self._signal(self._pending_signal)
        if "failed" in words:
            self._failed = words["failed"]
        if "leader" in words:
            self._leader = words["leader"]
            if "empty" not in words and self._phase == "run":
                # The exec ends with its leader: kill the processes that the leader left behind.
                self._enter("kill", _KILL_RETRY_S, _KILL)
        if "empty" in words:
            self._has_escaped = "left" in words
            if self._kills_orphans:
                self._kill_orphans(words)
            else:
                self._drain(words)

    def _kill_orphans(self, usage: dict[str, Any]) -> None:
        """Kill the processes that belong to no exec, which are the runner's children, before the result is built."""
        self._enter("kill", _KILL_RETRY_S, None)
        self._kill(0, _KILL, lambda: self._drain(usage))

    def _drain(self, usage: dict[str, Any]) -> None:
        if self._usage is not None:
            return  # the subreaper was lost after it had reported the tree's end
        self._usage = usage
        self.stdio.drain()
        self._enter("drain", _DRAIN_S, None)
        self._finish_if_over()

    def _on_subreaper_lost(self) -> None:
        """Handle an OOM-killed subreaper: kill its tree, whose processes are now orphans."""
        self._is_lost = True
        if self._usage is not None:
            return  # its tree had already ended
        self._failed = self._failed or "the exec's subreaper was killed"
        self._kill_orphans({})

    # -- ending -----------------------------------------------------------------------------------------------------

    def on_deadline(self) -> None:
        """Act on the passed deadline of the current phase."""
        if self._phase == "run":
            self.end("timed_out")
        elif self._phase in ("term", "kill"):
            self._enter("kill", _KILL_RETRY_S, _KILL)
        else:
            self._finish()

    def signal(self, number: int, done: Callable[[bool], None]) -> None:
        """Signal the whole tree; calls `done` with whether the signal was sent."""
        if self.result is not None or self._phase != "run" or self._handle.pid is None or self._signal_in_flight:
            done(False)
            return
        self._signal_in_flight = True

        def sent() -> None:
            done(True)
            self._on_signal_sent()

        self._kill(self._handle.pid, number, sent)

    def end(self, why: str, at_once: bool = False, grace_s: float | None = None) -> None:
        """End the tree: TERM, then KILL after `grace_s` (default: the request's). `at_once`: KILL only."""
        if self._phase == "run" and at_once:
            self._end_reason = why
            self._enter("kill", _KILL_RETRY_S, _KILL)
        elif self._phase == "run":
            self._end_reason = why
            grace_s = float(self._request["grace_s"] if grace_s is None else grace_s)
            self._enter("term", grace_s, _TERM)

    def _enter(self, phase: str, seconds: float, number: int | None) -> None:
        self._phase = phase
        self.deadline = time.monotonic() + seconds
        if number is not None:
            self._signal(number)

    def _signal(self, number: int) -> None:
        self._pending_signal = number
        if self._handle.pid is None or self._signal_in_flight:
            return
        self._signal_in_flight, self._pending_signal = True, None
        self._kill(self._handle.pid, number, self._on_signal_sent)

    def _on_signal_sent(self) -> None:
        self._signal_in_flight = False
        if self.result is not None:
            self._release_handle()
        elif self._pending_signal is not None:
            self._signal(self._pending_signal)

    def _finish_if_over(self) -> None:
        if self._usage is not None and self.stdio.is_over:
            self._finish()

    def _finish(self) -> None:
        if self.result is not None:
            return
        self.deadline = None
        self.stdio.close()
        self.spool.over = True
        if self._is_lost:
            self._handle.dismiss()
        else:
            self._loop.forget(self._handle.control.fileno())
        self.result = self._build_result()
        for answer in self.waiting:
            answer(True)
        self.waiting.clear()
        self._on_end(self.key, self._is_lost or self._has_escaped)
        if not self._signal_in_flight:
            self._release_handle()

    def _release_handle(self) -> None:
        """Return the subreaper to the pool, after any signal in flight, which could otherwise hit the next exec."""
        if not self._is_lost:
            self._on_free(self._handle)

    def _build_result(self) -> dict[str, Any]:
        usage = self._usage or {}
        before, after = self._oom_before, self._oom.count()
        oom = after - before if before is not None and after is not None else 0
        code = number = None
        if self._leader is not None and not self._failed:
            if os.WIFSIGNALED(self._leader):
                number = os.WTERMSIG(self._leader)
            else:
                code = os.WEXITSTATUS(self._leader)
        return {
            "kind": self._kind(code, number, oom),
            "exit_code": code,
            "signal": number,
            "error": self._failed,
            "duration_s": round(time.monotonic() - self._started, 6),
            "cpu_s": round(usage.get("cpu_s", 0.0), 6),
            "max_rss_kb": usage.get("max_rss_kb", 0),
            "oom_kills": oom,
            **self._counts(),
        }

    def _counts(self) -> dict[str, dict[str, int]]:
        counts = zip(STREAMS, self.spool.counts())
        return {name: {"bytes": seen, "dropped": lost, "gap": gap if lost else 0} for name, (seen, lost, gap) in counts}

    def _kind(self, code: int | None, number: int | None, oom: int) -> str:
        if self._end_reason is not None:
            return self._end_reason
        # The kernel counts OOM kills per sandbox. If another exec ran, blame this one only if its leader was killed.
        was_killed = number == _KILL or code == 128 + _KILL
        if oom > 0 and code != 0 and (was_killed or not self._overlapped):
            return "oom_killed"
        if self._failed:
            return "spawn_failed"
        return "exited" if code is not None else "signaled"

    def state(self) -> dict[str, Any]:
        """Return the current state, with the fields of `port.Process`."""
        return {
            "call": self.key[0],
            "attempt": self.key[1],
            "argv": self._request["argv"],
            "background": bool(self._request.get("background")),
            "age_s": round(time.monotonic() - self._started, 3),
            "result": self.result,
            **self._counts(),
        }

    @property
    def subreaper(self) -> int | None:
        """Pid of the exec's subreaper; None until reported."""
        return self._handle.pid

    @property
    def leader_ended(self) -> bool:
        """Whether the exec's first process has ended, or could not be started."""
        return self._leader is not None or self._is_lost

    def mark_overlapped(self) -> None:
        """Record that another exec ran at the same time."""
        self._overlapped = True
