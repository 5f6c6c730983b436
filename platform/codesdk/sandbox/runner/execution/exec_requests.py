"""Handles requests about execs: start, follow, write stdin, signal, cancel, acknowledge."""

from __future__ import annotations

import os

from codesdk.sandbox.runner.event_loop import PendingAnswers
from codesdk.sandbox.runner.execution.exec_lifecycle import Exec, Key
from codesdk.sandbox.runner.execution.execs import Execs
from codesdk.sandbox.runner.execution.spool import STREAMS, Cursor
from codesdk.sandbox.runner.protocol import wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from codesdk.sandbox.runner.egress.relay import Relay
    from codesdk.sandbox.runner.protocol.wire import Message
    from codesdk.sandbox.runner.workspace.fingerprints import PreExecCheck

    Header = dict[str, Any]
    Reply = Callable[[int, Header, bytes], None]
    ReplyLater = Callable[[int], Callable[[Header, bytes], None]]

MAX_OUTPUT_BYTES = 1024 * 1024
"""Maximum output bytes in one answer."""
SIGNALS = range(1, 32)


class ExecRequests:
    """Handles exec requests on the loop's thread. Drops an answer if the connection that asked is gone."""

    def __init__(
        self,
        execs: Execs,
        environment: dict[str, str],
        relay: Relay | None,
        reply: Reply,
        reply_coalesced: Reply,
        reply_later: ReplyLater,
    ) -> None:
        """`reply_coalesced` may delay a reply to batch it; `reply_later` drops it with its connection."""
        self._execs = execs
        self._environment = environment
        self._relay = relay
        self._reply = reply
        self._reply_coalesced = reply_coalesced
        self._reply_later = reply_later
        self._pending_answers = PendingAnswers()
        self.next_deadline = self._pending_answers.next_deadline
        self.tick = self._pending_answers.tick
        self.listeners: dict[Key, Cursor] = {}
        """Execs whose output and exit are sent as events to the current connection."""
        self.generation = 0
        self.is_frozen = False
        """Whether tools are frozen for a snapshot; then nothing is started."""
        self.checks: PreExecCheck | None = None
        """Pre-exec file checks; created on first use."""
        self.make_checks: Callable[[], PreExecCheck] | None = None
        """Creates `checks`."""
        self.cancel_pending: Callable[[Key], bool] = lambda _: False
        """Cancels a call's queued file operation; False if none is queued."""
        self.exec_blocker: Callable[[], str] = lambda: ""
        """Why the workspace quota blocks new execs; empty if it doesn't."""
        self.handlers: dict[str, Callable[[Message], None]] = {
            "start": self._start, "cancel": self._cancel, "ack": self._acknowledge, "execs": self._list,
            "output": self._output, "input": self._input, "signal": self._signal, "resize": self._resize,
        }  # fmt: skip

    def restart(self, generation: int) -> None:
        """Reset for a new connection: drop the listeners and pending answers of the previous one."""
        self.generation = generation
        self.listeners.clear()
        self._pending_answers.clear()
        if self.checks is not None:
            self.checks.restart()

    def _find_exec(self, message: Message) -> Exec | None:
        found = self._execs.get(_key(message.header))
        if found is None:
            self._reply(
                message.number, {"error": "NO_SUCH_EXEC", "message": "it was never started, or was acknowledged"}, b""
            )
        return found

    # -- starting and ending ------------------------------------------------------------------------------------------

    def _start(self, message: Message) -> None:
        header = message.header
        key = _key(header)
        found = self._execs.get(key)
        if found is None and self._stale_generation(header) is None and self._awaits_fingerprint_check(key, message):
            return
        refusal = self._refusal(header, key) if found is None else self._stale_generation(header)
        if refusal is not None:
            self._reply(message.number, refusal, b"")
            return
        state = "known"
        if found is None:
            found, state = self._begin(key, message), "started"
        if not header.get("quiet"):
            sent = header.get("from", (0, 0))
            self.listeners[key] = Cursor(int(sent[0]), int(sent[1]))
        self._reply_coalesced(message.number, {"state": state}, b"")

    def _awaits_fingerprint_check(self, key: Key, message: Message) -> bool:
        wanted = message.header.get("bound")
        if self.checks is None and (not wanted or self.make_checks is None):
            return False
        if self._execs.was_acknowledged(key):
            return False
        if self.checks is None and self.make_checks is not None:
            self.checks = self.make_checks()
        assert self.checks is not None  # noqa: S101 - made above
        items = wire.load_json(message.body[: int(message.header["spec_bytes"])])["bound"] if wanted else []
        return self.checks.must_wait(key, message, items)

    def _stale_generation(self, header: Header) -> Header | None:
        if int(header["generation"]) == self.generation:
            return None
        return {"error": "STALE_GENERATION", "generation": self.generation}

    def _refusal(self, header: Header, key: Key) -> Header | None:
        stale = self._stale_generation(header)
        if stale is not None:
            return stale
        if self._execs.was_acknowledged(key):
            return {"error": "ALREADY_ACKNOWLEDGED", "message": "its result was committed"}
        if header.get("join"):
            return {"error": "NO_SUCH_EXEC", "message": "it was never started here"}
        if self._execs.full():
            return {"error": "BUSY", "message": "too many execs run in this sandbox"}
        if self.is_frozen:
            text = "tools are frozen for a snapshot; try again after it"
            return {"error": "BUSY", "held": True, "message": text}
        why = "" if header.get("probe") else self.exec_blocker()
        return {"error": "NO_SPACE", "message": why} if why else None

    def _begin(self, key: Key, message: Message) -> Exec:
        header = message.header
        size = int(header["spec_bytes"])
        request = wire.load_json(message.body[:size])
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
            self._reply(message.number, {"ended": found is not None or self.cancel_pending(key)}, b"")
            return
        answer = self._reply_later(message.number)
        found.waiting.append(lambda ended: answer({"ended": ended}, b""))
        found.end("cancelled", grace_s=message.header.get("grace_s"))

    def _signal(self, message: Message) -> None:
        found = self._find_exec(message)
        if found is None:
            return
        number = int(message.header["signal"])
        if number not in SIGNALS:
            raise ValueError("not a signal number")
        answer = self._reply_later(message.number)
        found.signal(number, lambda sent: answer({"sent": sent}, b""))

    def _acknowledge(self, message: Message) -> None:
        self._reply_coalesced(message.number, {"forgotten": self._execs.acknowledge(_key(message.header))}, b"")

    def _list(self, message: Message) -> None:
        self._reply(message.number, {}, wire.dump_json(self._execs.states()))

    # -- output and input ---------------------------------------------------------------------------------------------

    def _output(self, message: Message) -> None:
        found = self._find_exec(message)
        if found is None:
            return
        header = message.header
        stream, offset = STREAMS.index(header["stream"]), int(header["offset"])
        limit = min(int(header["length"]), MAX_OUTPUT_BYTES)
        found.spool.forget(stream, offset)
        found.stdio.resume_reading()

        def answer() -> None:
            at, data = found.spool.read(stream, offset, limit)
            words = {"offset": at, "seen": found.spool.seen[stream], "over": found.result is not None}
            self._reply(message.number, words, data)

        self._pending_answers.add(header, lambda: found.spool.seen[stream] > offset or found.result is not None, answer)

    def _input(self, message: Message) -> None:
        found = self._find_exec(message)
        if found is None:
            return
        header, stdio = message.header, found.stdio

        def answer() -> None:
            # The offset detects a repeated request, so that no input is accepted twice.
            count = 0
            if header.get("offset") is not None and int(header["offset"]) == stdio.taken:
                count = stdio.write(message.body, bool(header.get("end")))
            self._reply(message.number, {"taken": count, "offset": stdio.taken, "open": stdio.is_open}, b"")

        self._pending_answers.add(header, lambda: stdio.room > 0 or not stdio.is_open, answer)

    def _resize(self, message: Message) -> None:
        found = self._find_exec(message)
        if found is not None:
            done = found.stdio.resize(int(message.header["rows"]), int(message.header["cols"]))
            self._reply(message.number, {"resized": done}, b"")


def _key(header: Header) -> Key:
    return str(header["call"]), int(header["attempt"])
