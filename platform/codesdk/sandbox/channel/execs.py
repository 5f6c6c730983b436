"""One caller at a time for each exec; how long one waits for an engine that is away; and what a cancel meets there."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from queue import Empty
from typing import Any, Protocol

from codesdk.sandbox.channel.connection import ConnectionLost, Header, Key, RunnerConnection, SendRequest
from codesdk.sandbox.port import ExecResult
from codesdk.sandbox.port.faults import CallCancelled, EngineUnavailable, RunnerRefused

ENGINE_OUTAGE_S = 60.0
"""How long an exec under way waits for an engine that is away; dockerd takes 2 s to stop and start here."""
_RETRY_S = 0.25


class ExecLock:
    """What the callers of one exec share: whether it may run, and whether it is not to begin any more."""

    def __init__(self, key: Key) -> None:
        self.mutex = threading.Lock()
        """Held by the one whose turn it is."""
        self.users = 0
        self._key = key
        self._guard = threading.Lock()
        self._is_started = False
        self._cancelled = threading.Event()

    def mark_started(self) -> None:
        """It is asked for now, or was by an earlier worker: from here on it may run.

        Raises:
            CallCancelled: it was withdrawn before.
        """
        with self._guard:
            if self._cancelled.is_set():
                raise CallCancelled(*self._key)
            self._is_started = True

    def mark_not_started(self) -> None:
        """The runner has said that it does not run."""
        with self._guard:
            self._is_started = False

    def cancel_before_start(self) -> bool:
        """Have it not begin. False: it may run, and only its runner can end it."""
        with self._guard:
            if not self._is_started:
                self._cancelled.set()
            return not self._is_started

    def pause(self, seconds: float) -> None:
        """Wait for so long.

        Raises:
            CallCancelled: it was withdrawn, before or meanwhile.
        """
        if self._cancelled.wait(seconds):
            raise CallCancelled(*self._key)


class ExecLocks:
    """A second caller of an exec waits, and is then answered from what the runner has stored."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._exec_locks: dict[Key, ExecLock] = {}

    @contextlib.contextmanager
    def acquire(self, key: Key) -> Iterator[ExecLock]:
        """This caller's turn."""
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
        """Have an exec that waits here to be asked for not begin. False: none does."""
        with self._lock:
            exec_lock = self._exec_locks.get(key)
        return exec_lock is not None and exec_lock.cancel_before_start()


class EngineOutage:
    """An engine that is being restarted, perhaps. An exec may live on meanwhile, and its runner keeps the output."""

    def __init__(self, deadline: float, exec_lock: ExecLock) -> None:
        """Deadline: of the exec, on the monotonic clock; `exec_lock`: its caller's."""
        self._deadline = deadline
        self._exec_lock = exec_lock
        self._until: float | None = None

    def wait(self, fault: EngineUnavailable) -> None:
        """Wait a moment.

        Raises:
            EngineUnavailable: it has been away for too long.
            CallCancelled: it was never asked for, and is not to be any more.
        """
        now = time.monotonic()
        if self._until is None:
            self._until = min(self._deadline, now + ENGINE_OUTAGE_S)
        if now >= self._until:
            raise fault
        self._exec_lock.pause(_RETRY_S)

    def over(self) -> None:
        """It answers again."""
        self._until = None


READ_OPERATIONS = frozenset(("read", "list", "stat", "marks", "manifest"))
"""Change nothing, so that nobody need know how they end."""
_CONTINUATIONS = frozenset(("upload.append", "upload.commit", "upload.abort"))
"""Belong to what was begun before."""
REMEMBERED = 1024
"""Calls that are kept in mind; each is forgotten when its end is recorded."""


class SendInterruptibleRequest(Protocol):
    """As `SendRequest`; `stop` is called while no answer comes, and what it raises ends the wait."""

    def __call__(
        self,
        header: Header,
        body: bytes = b"",
        *,
        timeout_s: float = 30.0,
        repeat: bool = False,
        stop: Callable[[], object] | None = None,
    ) -> tuple[Header, bytes]:
        """The answer's header and body."""
        ...


class CancelledCalls:
    """Of one sandbox. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: dict[Key, None] = {}

    def add(self, key: Key) -> None:
        """It was cancelled."""
        with self._lock:
            self._calls[key] = None
            while len(self._calls) > REMEMBERED:
                del self._calls[next(iter(self._calls))]

    def forget(self, key: Key) -> None:
        """It has ended."""
        with self._lock:
            self._calls.pop(key, None)

    def check(self, key: Key, *, was_sent: bool = False) -> None:
        """Go no further where it was cancelled.

        Raises:
            CallCancelled: it was.
        """
        if key in self._calls:
            raise CallCancelled(*key, was_sent=was_sent)

    def cancellable(self, key: Key, send: SendInterruptibleRequest) -> SendRequest:
        """Ask for that call."""

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
    """For what is read from a runner's words: in a tenant's image they are hostile input, and may be anything.

    Raises:
        RunnerRefused: they make no sense.
    """
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        raise RunnerRefused(f"The runner's {what} makes no sense: {error!r}"[:_MAX_MESSAGE]) from error


_MAX_MESSAGE = 2000


class OutputTracker:
    """How much of each stream has come.

    A gap or a repeat would forge the output, and in a tenant's image the runner's frames are hostile input: only one
    gap is taken, the one that the end accounts for.
    """

    def __init__(self, keep: int) -> None:
        """Keep: bytes of each stream that may come at most."""
        self.next = [0, 0]
        self._left = [keep, keep]
        self._gaps: list[tuple[int, int] | None] = [None, None]

    def take(self, header: dict[str, Any], size: int) -> tuple[int, int]:
        """A chunk has come: its stream and offset.

        Raises:
            RunnerRefused: it does not follow what came before, or there is more than was asked to be kept.
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
        """Compare with what the runner says in the end.

        Raises:
            RunnerRefused: it counts other bytes than it sent.
        """
        for index, count in enumerate((result.stdout, result.stderr)):
            end, gap = self.next[index], self._gaps[index]
            if gap is None and count.dropped:  # nothing was kept after what was dropped
                gap, end = (end, count.bytes - end), count.bytes
            if end != count.bytes or gap != ((count.gap, count.dropped) if count.dropped else None):
                raise RunnerRefused(f"The runner says that it kept {count!r}, and sent up to {end} with the gap {gap}")


PROBE_BYTES = 1 << 20
"""Most that a probe may say: a twentieth of it is usual."""


class ProbeFailed(Exception):
    """The probe did not say what it saw, whole and in time. Internal: `session` says that the sandbox is gone."""


def observe(link: RunnerConnection, key: Key, generation: int, answer_s: float) -> dict[str, Any]:
    """Run the probe as the exec `key`. `answer_s`: how long the runner may be silent; all of it may take twice that.

    Raises:
        Unobserved: see there. RunnerRefused: it did not start, or its output makes no sense.
    """
    events = link.listen(key)
    spec = json.dumps({"argv": ["probe"], "cwd": ".", "env": {}, "probe": True}).encode()
    header: Header = {
        "op": "start", "probe": True, "call": key[0], "attempt": key[1], "generation": generation,
        "spec_bytes": len(spec), "timeout_s": answer_s, "grace_s": 0.0, "keep_bytes": PROBE_BYTES,
    }  # fmt: skip
    text, why, received = bytearray(), "", OutputTracker(PROBE_BYTES)
    deadline = time.monotonic() + 2 * answer_s
    try:
        answer, _ = link.call(header, spec, timeout_s=answer_s)
        if "error" in answer:
            raise RunnerRefused(f"The runner refused to be probed: {answer}")
        while True:
            message = link.next(events, max(0.0, min(answer_s, deadline - time.monotonic())))
            if message.header.get("event") == "exit":
                why = str(message.header.get("result"))
                break
            if received.take(message.header, len(message.body))[0] == 0:
                text += message.body
        found = json.loads(text)
    except (ConnectionLost, Empty, ValueError, RecursionError) as error:
        raise ProbeFailed(f"its probe failed: {error!r} {bytes(text[:200])!r} {why}") from error
    finally:
        link.unlisten(key)
    if not isinstance(found, dict):
        raise ProbeFailed("its probe answered nonsense")
    return found
