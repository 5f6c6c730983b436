"""What a worker may ask about execs: start, watch, feed, signal, end and forget them."""

from __future__ import annotations

import os
import time

from codesdk.sandbox.runner import codec
from codesdk.sandbox.runner.execs import Execs
from codesdk.sandbox.runner.running import Exec, Key
from codesdk.sandbox.runner.spool import STREAMS, Cursor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from codesdk.sandbox.runner.bound import Checks
    from codesdk.sandbox.runner.relay import Relay
    from codesdk.sandbox.runner.wire import Message

    Header = dict[str, Any]
    Reply = Callable[[int, Header, bytes], None]
    Later = Callable[[int], Callable[[Header, bytes], None]]

MAX_WAIT_S = 20.0
"""Longest that an answer waits for output or for room, so that the worker's own limit never comes first."""
MAX_WAITS = 64
MAX_PART = 1024 * 1024
"""Most bytes of output in one answer."""
SIGNALS = range(1, 32)


class _Wait:
    """An answer that is given when something has happened, or when its time is over."""

    def __init__(self, deadline: float, is_ready: Callable[[], bool], answer: Callable[[], None]) -> None:
        self.deadline = deadline
        self.is_ready = is_ready
        self.answer = answer


class Orders:
    """All of it runs on the loop's thread; answers go to the connection that asked, or nowhere when that is gone."""

    def __init__(
        self, execs: Execs, environment: dict[str, str], relay: Relay | None, reply: Reply, softly: Reply, later: Later
    ) -> None:
        """Softly: a reply that may wait a moment for others. Later: one that is dropped with its connection."""
        self._execs = execs
        self._environment = environment
        self._relay = relay
        self._reply = reply
        self._softly = softly
        self._later = later
        self._waits: list[_Wait] = []
        self.listeners: dict[Key, Cursor] = {}
        """Who gets output and end as events: the execs that the present connection has asked for."""
        self.generation = 0
        self.held = False
        """While tools stand still for a snapshot nothing is started."""
        self.checks: Checks | None = None
        """Of the files that a start names, where one did."""
        self.checking: Callable[[], Checks] | None = None
        """Makes it."""
        self.withdraw: Callable[[Key], bool] = lambda _: False
        """Has a call's file operation not begin; False where none waits."""
        self.hindrance: Callable[[], str] = lambda: ""
        """Why the workspace lets no command begin; empty where it does."""
        self.handlers: dict[str, Callable[[Message], None]] = {
            "start": self._start, "cancel": self._cancel, "ack": self._acknowledge, "execs": self._list,
            "output": self._output, "input": self._input, "signal": self._signal, "resize": self._resize,
        }  # fmt: skip

    def restart(self, generation: int) -> None:
        """Another connection: what the last one waited for is nobody's business any more."""
        self.generation = generation
        self.listeners.clear()
        self._waits.clear()
        if self.checks is not None:
            self.checks.restart()

    def next_deadline(self) -> float | None:
        """When a wait is over, on the monotonic clock."""
        return min((wait.deadline for wait in self._waits), default=None)

    def tick(self) -> None:
        """Answer what has happened or is due."""
        if not self._waits:
            return
        now = time.monotonic()
        due = [wait for wait in self._waits if wait.deadline <= now or wait.is_ready()]
        self._waits = [wait for wait in self._waits if wait not in due]
        for wait in due:
            wait.answer()

    def _wait(self, header: Header, is_ready: Callable[[], bool], answer: Callable[[], None]) -> None:
        seconds = min(float(header.get("wait_s", 0.0)), MAX_WAIT_S)
        if seconds <= 0 or is_ready() or len(self._waits) >= MAX_WAITS:
            answer()
        else:
            self._waits.append(_Wait(time.monotonic() + seconds, is_ready, answer))

    def _found(self, message: Message) -> Exec | None:
        found = self._execs.get(_key(message.header))
        if found is None:
            self._reply(
                message.number, {"error": "NO_SUCH_EXEC", "message": "it was never started, or is forgotten"}, b""
            )
        return found

    # -- starting and ending ------------------------------------------------------------------------------------------

    def _start(self, message: Message) -> None:
        header = message.header
        key = _key(header)
        found = self._execs.get(key)
        if found is None and self._stale(header) is None and self._waits_for_files(key, message):
            return
        refusal = self._refusal(header, key) if found is None else self._stale(header)
        if refusal is not None:
            self._reply(message.number, refusal, b"")
            return
        state = "known"
        if found is None:
            found, state = self._begin(key, message), "started"
        if not header.get("quiet"):
            sent = header.get("from", (0, 0))
            self.listeners[key] = Cursor(int(sent[0]), int(sent[1]))
        self._softly(message.number, {"state": state}, b"")

    def _waits_for_files(self, key: Key, message: Message) -> bool:
        wanted = message.header.get("bound")
        if self.checks is None and (not wanted or self.checking is None):
            return False
        if self._execs.was_acknowledged(key):
            return False
        if self.checks is None and self.checking is not None:
            self.checks = self.checking()
        assert self.checks is not None  # noqa: S101 - made above
        items = codec.load(message.body[: int(message.header["spec_bytes"])])["bound"] if wanted else []
        return self.checks.keep(key, message, items)

    def _stale(self, header: Header) -> Header | None:
        if int(header["generation"]) == self.generation:
            return None
        return {"error": "STALE_GENERATION", "generation": self.generation}

    def _refusal(self, header: Header, key: Key) -> Header | None:
        stale = self._stale(header)
        if stale is not None:
            return stale
        if self._execs.was_acknowledged(key):
            return {"error": "ALREADY_ACKNOWLEDGED", "message": "its result was committed"}
        if header.get("join"):
            return {"error": "NO_SUCH_EXEC", "message": "it was never started here"}
        if self._execs.full():
            return {"error": "BUSY", "message": "too many execs run in this sandbox"}
        if self.held:
            text = "the tools stand still, for a snapshot perhaps; try again after it"
            return {"error": "BUSY", "held": True, "message": text}
        why = "" if header.get("probe") else self.hindrance()
        return {"error": "NO_SPACE", "message": why} if why else None

    def _begin(self, key: Key, message: Message) -> Exec:
        header = message.header
        size = int(header["spec_bytes"])
        request = codec.load(message.body[:size])
        request["env"] = {**self._environment, **request.get("env", {})}
        request.pop("bound", None)
        if request.pop("egress", False) and self._relay is not None:
            request["credential"] = os.urandom(16).hex()
            request["env"].update(self._relay.environment(request["credential"]))
        request["timeout_s"], request["grace_s"] = float(header["timeout_s"]), float(header["grace_s"])
        return self._execs.start(key, request, message.body[size:], int(header["keep_bytes"]))

    def _cancel(self, message: Message) -> None:
        key = _key(message.header)
        found = self._execs.get(key)
        if found is None or found.result is not None:
            self._reply(message.number, {"ended": found is not None or self.withdraw(key)}, b"")
            return
        answer = self._later(message.number)
        found.waiting.append(lambda ended: answer({"ended": ended}, b""))
        found.end("cancelled", grace_s=message.header.get("grace_s"))

    def _signal(self, message: Message) -> None:
        found = self._found(message)
        if found is None:
            return
        number = int(message.header["signal"])
        if number not in SIGNALS:
            raise ValueError("no signal")
        answer = self._later(message.number)
        found.signal(number, lambda sent: answer({"sent": sent}, b""))

    def _acknowledge(self, message: Message) -> None:
        self._softly(message.number, {"forgotten": self._execs.acknowledge(_key(message.header))}, b"")

    def _list(self, message: Message) -> None:
        self._reply(message.number, {}, codec.dump(self._execs.states()))

    # -- output and input ---------------------------------------------------------------------------------------------

    def _output(self, message: Message) -> None:
        found = self._found(message)
        if found is None:
            return
        header = message.header
        stream, offset = STREAMS.index(header["stream"]), int(header["offset"])
        limit = min(int(header["length"]), MAX_PART)
        found.spool.forget(stream, offset)
        found.stdio.go_on()

        def answer() -> None:
            at, data = found.spool.read(stream, offset, limit)
            words = {"offset": at, "seen": found.spool.seen[stream], "over": found.result is not None}
            self._reply(message.number, words, data)

        self._wait(header, lambda: found.spool.seen[stream] > offset or found.result is not None, answer)

    def _input(self, message: Message) -> None:
        found = self._found(message)
        if found is None:
            return
        header, stdio = message.header, found.stdio

        def answer() -> None:
            # With its offset a repeated request is recognised: what was taken is never taken twice.
            count = 0
            if header.get("offset") is not None and int(header["offset"]) == stdio.taken:
                count = stdio.write(message.body, bool(header.get("end")))
            self._reply(message.number, {"taken": count, "offset": stdio.taken, "open": stdio.is_open}, b"")

        self._wait(header, lambda: stdio.room > 0 or not stdio.is_open, answer)

    def _resize(self, message: Message) -> None:
        found = self._found(message)
        if found is not None:
            done = found.stdio.resize(int(message.header["rows"]), int(message.header["cols"]))
            self._reply(message.number, {"resized": done}, b"")


def _key(header: Header) -> Key:
    return str(header["call"]), int(header["attempt"])
