"""Execs as the worker tracks them: locks, engine outages, cancelled calls, received output, and the probe."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from queue import Empty
from typing import Any

from codesdk.sandbox.channel.connection import ConnectionLost, Header, Key, RunnerConnection, SendRequest
from codesdk.sandbox.port import ExecResult
from codesdk.sandbox.port.faults import CallCancelled, EngineUnavailable, RunnerRefused

ENGINE_OUTAGE_S = 60.0
"""How long a running exec waits for an engine that is down; a dockerd restart takes 2 s here."""
_RETRY_S = 0.25


class ExecLock:
    """Shared by all callers of one exec: whether it may have started, and whether it was cancelled first."""

    def __init__(self, key: Key) -> None:
        self.mutex = threading.Lock()
        """Held by the caller that talks to the runner."""
        self.users = 0
        self._key = key
        self._guard = threading.Lock()
        self._is_started = False
        self._cancelled = threading.Event()

    def mark_started(self) -> None:
        """Record that the start is about to be sent, or was sent by an earlier worker.

        Raises:
            CallCancelled: it was cancelled before.
        """
        with self._guard:
            if self._cancelled.is_set():
                raise CallCancelled(*self._key)
            self._is_started = True

    def mark_not_started(self) -> None:
        """Record the runner's answer that the exec didn't start."""
        with self._guard:
            self._is_started = False

    def cancel_before_start(self) -> bool:
        """Prevent the start. False: it may run already, and only the runner can end it."""
        with self._guard:
            if not self._is_started:
                self._cancelled.set()
            return not self._is_started

    def pause(self, seconds: float) -> None:
        """Sleep.

        Raises:
            CallCancelled: it was cancelled, before or meanwhile.
        """
        if self._cancelled.wait(seconds):
            raise CallCancelled(*self._key)


class ExecLocks:
    """One lock per exec. A second caller waits, and then gets the result that the runner has stored."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._exec_locks: dict[Key, ExecLock] = {}

    @contextlib.contextmanager
    def acquire(self, key: Key) -> Iterator[ExecLock]:
        """Hold the exec's lock."""
        with self._lock:
            exec_lock = self._exec_locks.setdefault(key, ExecLock(key))
            exec_lock.users += 1
        try:
            with exec_lock.mutex:
                yield exec_lock
        finally:
            with self._lock:
                exec_lock.users -= 1
                if not exec_lock.users:
                    del self._exec_locks[key]

    def cancel_before_start(self, key: Key) -> bool:
        """Cancel an exec that hasn't been sent to the runner. False: there is none."""
        with self._lock:
            exec_lock = self._exec_locks.get(key)
        return exec_lock is not None and exec_lock.cancel_before_start()


class EngineOutage:
    """Retries while the engine is down, e.g. restarting: the exec may keep running, and its runner keeps the output."""

    def __init__(self, deadline: float, exec_lock: ExecLock) -> None:
        """`deadline`: the exec's, on the monotonic clock."""
        self._deadline = deadline
        self._exec_lock = exec_lock
        self._until: float | None = None

    def wait(self, fault: EngineUnavailable) -> None:
        """Wait before the next try.

        Raises:
            EngineUnavailable: the outage has lasted longer than `ENGINE_OUTAGE_S` or the exec's deadline.
            CallCancelled: the exec was cancelled before it was sent.
        """
        now = time.monotonic()
        if self._until is None:
            self._until = min(self._deadline, now + ENGINE_OUTAGE_S)
        if now >= self._until:
            raise fault
        self._exec_lock.pause(_RETRY_S)

    def over(self) -> None:
        """The engine answers again."""
        self._until = None


READ_OPERATIONS = frozenset(("read", "list", "stat", "marks", "manifest"))
"""Operations without side effects; a cancel doesn't wait for them."""
_CONTINUATIONS = frozenset(("upload.append", "upload.commit", "upload.abort"))
"""Operations that continue an upload."""
REMEMBERED = 1024
"""Cancelled calls remembered at most; each is dropped when its end is recorded."""


class CancelledCalls:
    """Cancelled calls of one sandbox: their file operations are refused, and pending reads abandoned. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: dict[Key, None] = {}

    def add(self, key: Key) -> None:
        """Record a cancel."""
        with self._lock:
            self._calls[key] = None
            while len(self._calls) > REMEMBERED:
                del self._calls[next(iter(self._calls))]

    def forget(self, key: Key) -> None:
        """Drop a call that has ended."""
        with self._lock:
            self._calls.pop(key, None)

    def check(self, key: Key, *, was_sent: bool = False) -> None:
        """Raise if the call was cancelled.

        Raises:
            CallCancelled: it was.
        """
        if key in self._calls:
            raise CallCancelled(*key, was_sent=was_sent)

    def cancellable(self, key: Key, send: Callable[..., tuple[Header, bytes]]) -> SendRequest:
        """Wrap `RunnerClient.request` so that requests belong to that call and stop when it is cancelled."""

        def request(
            header: dict[str, Any], body: bytes = b"", *, timeout_s: float = 30.0, repeat: bool = False
        ) -> tuple[dict[str, Any], bytes]:
            operation = str(header.get("op"))
            if operation in _CONTINUATIONS:
                return send(header, body, timeout_s=timeout_s, repeat=repeat)
            self.check(key)
            named = {**header, "call": key[0], "attempt": key[1]}
            stop = partial(self.check, key, was_sent=True) if operation in READ_OPERATIONS else None
            answer, data = send(named, body, timeout_s=timeout_s, repeat=repeat, stop=stop)
            if answer.get("error") == "WITHDRAWN":
                raise CallCancelled(*key)
            return answer, data

        return request


@contextlib.contextmanager
def reject_malformed(what: str) -> Iterator[None]:
    """Guards the parsing of runner messages, which are hostile input in a tenant's image.

    Raises:
        RunnerRefused: the message is malformed.
    """
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        raise RunnerRefused(f"The runner's {what} is malformed: {error!r}"[:_MAX_MESSAGE]) from error


_MAX_MESSAGE = 2000


class OutputTracker:
    """Checks that the received output of an exec is complete.

    A gap or repeat would forge the output, and in a tenant's image the runner is hostile: at most one gap per stream is
    accepted, and the result must account for it.
    """

    def __init__(self, keep: int) -> None:
        """`keep`: the most bytes accepted per stream."""
        self.next = [0, 0]
        self._left = [keep, keep]
        self._gaps: list[tuple[int, int] | None] = [None, None]

    def take(self, header: dict[str, Any], size: int) -> tuple[int, int]:
        """Account for a chunk; returns its stream and offset.

        Raises:
            RunnerRefused: it doesn't follow the previous chunk, or exceeds `keep`.
        """
        with reject_malformed("output"):
            stream, offset = int(header["stream"]), int(header["offset"])
            if stream not in (0, 1):
                raise LookupError(f"there is no stream {stream}")
        self._left[stream] -= size
        if self._left[stream] < 0:
            raise RunnerRefused("The runner sent more output than it was asked to keep")
        if offset != self.next[stream]:
            if offset < self.next[stream] or self._gaps[stream] is not None:
                raise RunnerRefused(f"The runner sent output at offset {offset} where {self.next[stream]} was expected")
            self._gaps[stream] = (self.next[stream], offset - self.next[stream])
        self.next[stream] = offset + size
        return stream, offset

    def check(self, result: ExecResult) -> None:
        """Compare with the counts in the result.

        Raises:
            RunnerRefused: they differ.
        """
        for index, count in enumerate((result.stdout, result.stderr)):
            end, gap = self.next[index], self._gaps[index]
            if gap is None and count.dropped:  # nothing was kept after what was dropped
                gap, end = (end, count.bytes - end), count.bytes
            if end != count.bytes or gap != ((count.gap, count.dropped) if count.dropped else None):
                raise RunnerRefused(f"The runner reports {count!r}, but sent up to {end} with the gap {gap}")


PROBE_BYTES = 1 << 20
"""Most output of a probe; typical is a twentieth of it."""


class ProbeFailed(Exception):
    """The probe gave no complete answer in time. Internal: `RunnerSandbox` raises SandboxGone instead."""


def run_probe(connection: RunnerConnection, key: Key, generation: int, answer_s: float) -> dict[str, Any]:
    """Run the probe as exec `key` and return what a tool process sees, for the attestation.

    `answer_s`: longest silence of the runner; the whole probe may take twice that.

    Raises:
        ProbeFailed: no complete answer in time. RunnerRefused: it didn't start, or its output is malformed.
    """
    events = connection.listen(key)
    spec = json.dumps({"argv": ["probe"], "cwd": ".", "env": {}, "probe": True}).encode()
    header: Header = {
        "op": "start", "probe": True, "call": key[0], "attempt": key[1], "generation": generation,
        "spec_bytes": len(spec), "timeout_s": answer_s, "grace_s": 0.0, "keep_bytes": PROBE_BYTES,
    }  # fmt: skip
    text, why, received = bytearray(), "", OutputTracker(PROBE_BYTES)
    deadline = time.monotonic() + 2 * answer_s
    try:
        answer, _ = connection.call(header, spec, timeout_s=answer_s)
        if "error" in answer:
            raise RunnerRefused(f"The runner refused to be probed: {answer}")
        while True:
            message = connection.next(events, max(0.0, min(answer_s, deadline - time.monotonic())))
            if message.header.get("event") == "exit":
                why = str(message.header.get("result"))
                break
            if received.take(message.header, len(message.body))[0] == 0:
                text += message.body
        found = json.loads(text)
    except (ConnectionLost, Empty, ValueError, RecursionError) as error:
        raise ProbeFailed(f"its probe failed: {error!r} {bytes(text[:200])!r} {why}") from error
    finally:
        connection.unlisten(key)
    if not isinstance(found, dict):
        raise ProbeFailed("its probe's answer is malformed")
    return found
