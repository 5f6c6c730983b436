"""One exec's life: started once, watched, ended, its output and result kept until they are acknowledged."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import time
from typing import Any, Callable

from codesdk.sandbox.runner import probe
from codesdk.sandbox.runner.loop import Loop
from codesdk.sandbox.runner.shepherd import Nursery, send_request
from codesdk.sandbox.runner.spool import STREAMS, Budget, Spool

MAX_RUNNING = 24
"""Each running exec has a shepherd, and these need their place beneath the pids limit (see `spec.RESERVED_PIDS`)."""
KEEP_SPARE_S = 20.0
"""After this without execs the shepherd in reserve is let go: it is a third of an idle sandbox's memory."""
_READ_BYTES = 64 * 1024
_DRAIN_S = 0.25
"""How long output is still collected when the tree has ended and something outside it holds the pipe."""
_KILL_AGAIN_S = 0.2

Key = tuple[str, int]
SignalTree = Callable[[int, int, Callable[[], None]], None]
"""(shepherd, signal, done): signal everything beneath that shepherd, then call `done` on the loop."""

OnEnd = Callable[[Key], None]


class Seat:
    """A shepherd that waits for its exec, with the runner's ends of its pipes."""

    def __init__(self, nursery: Nursery) -> None:
        self.control, theirs = socket.socketpair()
        stdin, self.stdin = os.pipe()
        self.stdout, stdout = os.pipe()
        self.stderr, stderr = os.pipe()
        try:
            nursery.shepherd(theirs, stdin, stdout, stderr)
        finally:
            theirs.close()
            for fd in (stdin, stdout, stderr):
                os.close(fd)
        for fd in (self.stdin, self.stdout, self.stderr):
            os.set_blocking(fd, False)

    def is_fresh(self) -> bool:
        """Whether shepherd and leader still wait: they have said who they are and nothing else."""
        try:
            said = self.control.recv(1 << 12, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        return said.count(b"\n") == 1 and said.endswith(b"\n")

    def dismiss(self) -> None:
        """Close it; the shepherd and its leader end."""
        self.control.close()
        for fd in (self.stdin, self.stdout, self.stderr):
            os.close(fd)


class Exec:
    """State of one process tree. All methods run on the loop's thread."""

    def __init__(
        self,
        key: Key,
        request: dict[str, Any],
        stdin: bytes,
        loop: Loop,
        kill: SignalTree,
        spool: Spool,
        on_end: OnEnd,
    ) -> None:
        self.key = key
        self.spool = spool
        self.result: dict[str, Any] | None = None
        self.waiting: list[Callable[[bool], None]] = []
        self.credential = str(request.get("credential", ""))
        """What its proxy URL carries; empty for an exec without egress."""
        self._request = request
        self._stdin = memoryview(stdin)
        self._loop = loop
        self._kill = kill
        self._on_end = on_end
        self._overlapped = False
        self._phase = "run"
        self._ending: str | None = None
        self._shepherd: int | None = None
        self._wanted: int | None = None
        self._killing = False
        self._leader: int | None = None
        self._failed = ""
        self._usage: dict[str, Any] | None = None
        self._lines = b""
        self._open: dict[int, int] = {}
        self._started = time.monotonic()
        self._oom_before = probe.oom_kills()
        self.deadline: float | None = self._started + float(request["timeout_s"])

    def run(self, seat: Seat) -> None:
        """Hand the request to the shepherd and watch."""
        self._seat = seat
        try:
            send_request(seat.control, self._request)
        except OSError:
            pass  # the shepherd died; its socket is at its end, which is handled where that is read
        seat.control.setblocking(False)
        self._loop.watch(seat.control.fileno(), select.POLLIN, self._on_control)
        for stream, fd in enumerate((seat.stdout, seat.stderr)):
            self._open[fd] = stream
            self._loop.watch(fd, select.POLLIN, self._on_output)
        self._loop.watch(seat.stdin, select.POLLOUT, self._on_stdin)
        self._on_stdin(seat.stdin)

    # -- events ---------------------------------------------------------------------------------------------------

    def _on_stdin(self, fd: int, _: int = 0) -> None:
        try:
            while self._stdin:
                self._stdin = self._stdin[os.write(fd, self._stdin[:_READ_BYTES]) :]
        except BlockingIOError:
            return
        except OSError:
            pass  # the tool does not read its input: its own choice
        self._close_stdin()

    def _close_stdin(self) -> None:
        self._stdin = memoryview(b"")
        if self._seat.stdin >= 0:
            self._loop.forget(self._seat.stdin)
            os.close(self._seat.stdin)
            self._seat.stdin = -1

    def _on_output(self, fd: int, _: int = 0) -> bool:
        """Read once; False when there is nothing more to read now."""
        try:
            data = os.read(fd, _READ_BYTES)
        except BlockingIOError:
            return False
        if data:
            self.spool.add(self._open[fd], data)
            return True
        self._loop.forget(fd)
        os.close(fd)
        del self._open[fd]
        self._finish_if_over()
        return False

    def _on_control(self, fd: int, _: int = 0) -> None:
        try:
            data = self._seat.control.recv(1 << 16)
        except BlockingIOError:
            return
        *lines, self._lines = (self._lines + data).split(b"\n")
        for line in lines:
            self._hear(json.loads(line))
        if not data:
            self._loop.forget(fd)
            self._seat.control.close()
            if self._usage is None:
                self._lost()
        self._finish_if_over()

    def _hear(self, words: dict[str, Any]) -> None:
        if "shepherd" in words:
            self._shepherd = words["shepherd"]
            if self._wanted is not None:
                self._signal(self._wanted)
        if "failed" in words:
            self._failed = words["failed"]
        if "leader" in words:
            self._leader = words["leader"]
            if "empty" not in words and self._phase == "run":
                # The leader's end ends the exec; what it left behind does not outlive it.
                self._enter("kill", _KILL_AGAIN_S, signal.SIGKILL)
        if "empty" in words:
            self._usage = words
            for fd in list(self._open):
                while self._on_output(fd):
                    pass
            self._enter("drain", _DRAIN_S, None)

    def _lost(self) -> None:
        """The shepherd died (out of memory): its tree has become the runner's and is killed there."""
        self._usage = {}
        self._failed = self._failed or "the exec's supervisor was killed"
        self._kill(0, signal.SIGKILL, lambda: None)
        self._enter("drain", _DRAIN_S, None)

    # -- ending -----------------------------------------------------------------------------------------------------

    def on_deadline(self) -> None:
        """The time of the present phase is over."""
        if self._phase == "run":
            self.end("timed_out")
        elif self._phase in ("term", "kill"):
            self._enter("kill", _KILL_AGAIN_S, signal.SIGKILL)
        else:
            self._finish()

    def end(self, why: str) -> None:
        """Begin to end the tree: TERM, then after the grace KILL."""
        if self._phase == "run":
            self._ending = why
            self._enter("term", float(self._request["grace_s"]), signal.SIGTERM)

    def _enter(self, phase: str, seconds: float, number: int | None) -> None:
        self._phase = phase
        self.deadline = time.monotonic() + seconds
        if number is not None:
            self._signal(number)

    def _signal(self, number: int) -> None:
        self._wanted = number
        if self._shepherd is None or self._killing:
            return
        self._killing, self._wanted = True, None
        self._kill(self._shepherd, number, self._signalled)

    def _signalled(self) -> None:
        self._killing = False
        if self._wanted is not None and self.result is None:
            self._signal(self._wanted)

    def _finish_if_over(self) -> None:
        if self._usage is not None and not self._open:
            self._finish()

    def _finish(self) -> None:
        if self.result is not None:
            return
        self.deadline = None
        self._close_stdin()
        for fd in list(self._open):
            self._loop.forget(fd)
            os.close(fd)
        self._open.clear()
        self._loop.forget(self._seat.control.fileno())
        self._seat.control.close()
        self.result = self._describe()
        for answer in self.waiting:
            answer(True)
        self.waiting.clear()
        self._on_end(self.key)

    def _describe(self) -> dict[str, Any]:
        usage = self._usage or {}
        counts = self.spool.counts()
        before, after = self._oom_before, probe.oom_kills()
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
            **{name: {"bytes": seen, "dropped": lost} for name, (seen, lost) in zip(STREAMS, counts)},
        }

    def _kind(self, code: int | None, number: int | None, oom: int) -> str:
        if self._ending is not None:
            return self._ending
        # The kernel's counter is the sandbox's, not the exec's: with a neighbour running, ask for a killed leader.
        was_killed = number == signal.SIGKILL or code == 128 + signal.SIGKILL
        if oom > 0 and code != 0 and (was_killed or not self._overlapped):
            return "oom_killed"
        if self._failed:
            return "spawn_failed"
        return "exited" if code is not None else "signaled"

    @property
    def shepherd(self) -> int | None:
        """The pid of its shepherd, above all its processes; None until that has said so."""
        return self._shepherd

    def overlap(self) -> None:
        """Another exec runs meanwhile."""
        self._overlapped = True


class Execs:
    """All execs of the sandbox, by (call, attempt)."""

    REMEMBERED = 16_384
    """Acknowledged execs whose keys are kept, so that a repeated start is refused and not run."""

    def __init__(self, loop: Loop, nursery: Nursery, kill: SignalTree, spool_bytes: int) -> None:
        self._loop = loop
        self._nursery = nursery
        self._kill = kill
        self._budget = Budget(spool_bytes)
        self._known: dict[Key, Exec] = {}
        self._running: dict[Key, Exec] = {}
        self._done: dict[Key, None] = {}
        self._spare: Seat | None = None
        self._used = time.monotonic()

    def get(self, key: Key) -> Exec | None:
        """The exec, running or ended, until it is acknowledged."""
        return self._known.get(key)

    def was_acknowledged(self, key: Key) -> bool:
        """It ran, ended, and its result was committed."""
        return key in self._done

    def full(self) -> bool:
        """No more execs can run now."""
        return len(self._running) >= MAX_RUNNING

    def start(self, key: Key, request: dict[str, Any], stdin: bytes, keep: int) -> Exec:
        """Start it. The caller has checked that the key is new and that there is room."""
        seat = self._take_seat()
        spool = Spool(keep, self._budget)
        found = Exec(key, request, stdin, self._loop, self._kill, spool, self._ended)
        for other in self._running.values():
            other.overlap()
            found.overlap()
        self._known[key] = self._running[key] = found
        found.run(seat)
        return found

    def _take_seat(self) -> Seat:
        self._used = time.monotonic()
        spare, self._spare = self._spare, None
        if spare is not None:
            if spare.is_fresh():
                return spare
            spare.dismiss()  # the kernel killed it for memory while it waited
        return Seat(self._nursery)

    def _ended(self, key: Key) -> None:
        self._running.pop(key, None)
        self._used = time.monotonic()

    def prepare(self) -> None:
        """Have a shepherd ready for the next exec: half of the time of a start is the forking."""
        if self._spare is None and self._idle_s() < KEEP_SPARE_S:
            try:
                self._spare = Seat(self._nursery)
            except OSError:
                self._used = 0.0  # no descriptors to be had: the next exec will say so

    def _idle_s(self) -> float:
        return 0.0 if self._running else time.monotonic() - self._used

    def acknowledge(self, key: Key) -> bool:
        """Forget an ended exec; False when it is unknown or still runs."""
        found = self._known.get(key)
        if found is None or found.result is None:
            return key in self._done
        found.spool.release()
        del self._known[key]
        self._done[key] = None
        while len(self._done) > self.REMEMBERED:
            del self._done[next(iter(self._done))]
        return True

    def next_deadline(self) -> float | None:
        """When `tick` has something to do, on the monotonic clock."""
        times = [item.deadline for item in self._running.values() if item.deadline is not None]
        if self._spare is not None and not self._running:
            times.append(self._used + KEEP_SPARE_S)
        return min(times) if times else None

    def tick(self) -> None:
        """Do what is due."""
        now = time.monotonic()
        if self._spare is not None and self._idle_s() >= KEEP_SPARE_S:
            self._spare.dismiss()
            self._spare = None
        for item in list(self._running.values()):
            if item.deadline is not None and item.deadline <= now:
                item.on_deadline()

    def passes(self) -> list[tuple[int, str, int, str]]:
        """The running execs that may use egress: shepherd, call, attempt, credential."""
        return [
            (item.shepherd, key[0], key[1], item.credential)
            for key, item in self._running.items()
            if item.credential and item.shepherd is not None
        ]

    def states(self) -> list[dict[str, Any]]:
        """Every exec that is not acknowledged."""
        return [
            {"call": key[0], "attempt": key[1], "state": "exited" if item.result else "running"}
            for key, item in self._known.items()
        ]
