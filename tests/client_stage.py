"""The MCP host with real clients: records everything that they send, and makes calls last as long as a test needs.

The path in a call selects its course, so that every client goes through the same steps: `slow` runs until it was
requested twice, the connection of `dropped` is cut while it runs, and `cancelled` runs until it is stopped.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from codesdk.approvals import Verdict
from codesdk.domain.tool_results import ToolResult
from codesdk.mcphost.tool_calls.caller import AGENT_KEYS, CALL_ID_KEY

WAIT_S = 2.0
"""Seconds in which the first call of `slow` is answered, as a client's configuration would have it (`CodeSDK-Wait`)."""
LIMIT_S = 120.0
"""Seconds until something that must happen is given up."""
LOOK_S = 0.02
MARK = "half-of-it-is-done"
"""What `slow` prints while it runs, and so what its progress says."""
READ = ("workspace_read", {"path": "a.txt"})
DENIED = ("workspace_read", {"path": "x.pem"})
SLOW = ("workspace_write", {"path": "slow", "content": "x"})
DROPPED = ("workspace_write", {"path": "dropped", "content": "x"})
ASKED = ("workspace_exec", {"command": "true"})
CANCELLED = ("workspace_write", {"path": "cancelled", "content": "x"})
STEPS = (READ, DENIED, SLOW, SLOW, DROPPED, ASKED, CANCELLED)
"""Every client makes these calls, in this order; the last never ends by itself."""
RAN = {"exit_code": 0, "signal": None, "outcome": "exited", "stdout": "", "stderr": "", "stdout_bytes": 0}
RAN |= {"stderr_bytes": 0, "truncated": False, "duration_ms": 1}


def of(arguments: dict[str, Any] | None) -> str:
    """The word of a call's arguments that the steps are known by."""
    given = arguments or {}
    return str(given.get("path", given.get("command")))


@dataclass
class Watched:
    """ASGI around the host: notes what clients send, and drops the connection of a call where that is wanted."""

    app: Any
    patience_s: float
    """Seconds until a connection is cut: a client that has not read its first event yet has nothing to come back with."""
    sent: list[dict[str, Any]] = field(default_factory=list)
    asked: Counter[str] = field(default_factory=Counter)
    """How often each call was asked for, by its word."""
    running: set[str] = field(default_factory=set)
    """Calls that a worker runs, or ran."""
    told: threading.Event = field(default_factory=threading.Event)
    """The mark was sent to a client as progress."""
    back: threading.Event = field(default_factory=threading.Event)
    """A client came back to take a stream up again."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request."""
        if scope["type"] != "http" or scope["path"] != "/mcp":
            await self.app(scope, receive, send)
        elif scope["method"] == "GET":
            await self._resume(scope, receive, send)
        elif scope["method"] == "POST":
            await self._post(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def _resume(self, scope: Any, receive: Any, send: Any) -> None:
        resumes = any(name == b"last-event-id" for name, _ in scope["headers"])

        async def watched(message: Any) -> None:
            await send(message)
            if resumes and message["type"] == "http.response.start" and message["status"] == 200:
                self.back.set()

        await self.app(scope, receive, watched)

    async def _post(self, scope: Any, receive: Any, send: Any) -> None:
        body = await _whole(receive)
        message = json.loads(body)
        self.sent.append(message)
        word = of(message["params"].get("arguments")) if message.get("method") == "tools/call" else ""
        self.asked[word] += 1
        first = self.asked[word] == 1
        drop = _Drop(self, word) if word == "dropped" and first else None
        given = False

        async def again() -> Any:
            nonlocal given
            if given:
                return await (drop.due() if drop else receive())
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def watched(message: Any) -> None:
            if drop is not None and drop.gone:
                return
            await send(message)
            piece = message.get("body", b"")
            if drop is not None:
                drop.seen = drop.seen or bool(piece)
            if b"notifications/progress" in piece and MARK.encode() in piece:
                self.told.set()

        timed = [(b"codesdk-wait", str(WAIT_S).encode())] if word == "slow" and first else []
        await self.app({**scope, "headers": [*scope["headers"], *timed]}, again, watched)

    def of(self, method: str) -> list[dict[str, Any]]:
        """The parameters of the messages of that method, in order."""
        return [message.get("params") or {} for message in self.sent if message.get("method") == method]

    def names_calls(self) -> str:
        """The field of `_meta` in which its calls carry an id of their own; `no` where there is none."""
        said = {name for each in self.of("tools/call") for name in each.get("_meta") or {}}
        return ", ".join(f"`{name}`" for name in (CALL_ID_KEY, *AGENT_KEYS) if name in said) or "no"

    def asks_for_progress(self) -> bool:
        """Whether its calls carry a token for it."""
        return any("progressToken" in (each.get("_meta") or {}) for each in self.of("tools/call"))


@dataclass
class _Drop:
    """The end of one connection, as the host sees it: once it has sent an event and the call runs."""

    watched: Watched
    word: str
    seen: bool = False
    gone: bool = False

    async def due(self) -> dict[str, str]:
        """Wait for that moment. After it the server finds an answer that was not ended, and closes the connection."""
        for _ in range(int(LIMIT_S / LOOK_S)):
            if self.seen and self.word in self.watched.running:
                break
            await asyncio.sleep(LOOK_S)
        await asyncio.sleep(self.watched.patience_s)
        self.gone = True
        return {"type": "http.disconnect"}


async def _whole(receive: Any) -> bytes:
    body = b""
    more = True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return body


class Scene:
    """A running stack whose stand-in worker and person do what the steps need. Close it before the stack."""

    def __init__(self, stack: Any, watched: Watched) -> None:
        self.stack = stack
        self.watched = watched
        self.session, self.token = stack.open_session()
        self.runs: Counter[str] = Counter()
        """How often each call ran, by its word."""
        self.calls: dict[str, str] = {}
        """The id of each call's last run, by its word."""
        self._closing = threading.Event()
        self._beside: list[threading.Thread] = []
        stack.worker.answer = self._run
        self._start(self._approve)

    def close(self) -> None:
        """End what waits here."""
        self._closing.set()
        self.stack.worker.gate.set()
        for thread in self._beside:
            thread.join(LIMIT_S)

    def cancelled(self, word: str) -> bool:
        """Whether the run of that call was stopped."""
        return self.calls.get(word) in self.stack.worker.cancelled

    def _start(self, what: Any, *given: Any) -> None:
        thread = threading.Thread(target=what, args=given, daemon=True)
        self._beside.append(thread)
        thread.start()

    def _run(self, claimed: Any) -> ToolResult:
        """On the worker's thread: what the call will answer, and, by closing the worker's gate, until when it runs."""
        call = claimed.stored.call
        word = of(call.input)
        self.runs[word] += 1
        self.calls[word] = claimed.stored.identity.tool_call_id
        self.watched.running.add(word)
        gate = self.stack.worker.gate
        (gate.clear if word in ("slow", "dropped", "cancelled") else gate.set)()
        if word == "slow":
            self._start(self._go_on, claimed)
        elif word == "dropped":
            self._start(self._taken_up)
        if call.name == "workspace.exec":
            return ToolResult(text="it ran", structured=RAN)
        if call.name == "workspace.read":
            return ToolResult(text="hello\n", structured=_read(call.input))
        return ToolResult(text="written", structured=_wrote(call.input))

    def _go_on(self, claimed: Any) -> None:
        """Print until its second caller was told so, then end."""
        deadline = time.monotonic() + LIMIT_S
        while not self._closing.wait(0.2) and time.monotonic() < deadline:
            if self.watched.asked["slow"] < 2:
                continue
            if self.watched.told.is_set() or not self.watched.asks_for_progress():
                break
            self.stack.worker.say(claimed, f"{MARK}\n")
        self.stack.worker.gate.set()

    def _taken_up(self) -> None:
        """End when its client is back."""
        deadline = time.monotonic() + LIMIT_S
        while not self.watched.back.wait(0.1) and not self._closing.is_set() and time.monotonic() < deadline:
            continue
        self.stack.worker.gate.set()

    def _approve(self) -> None:
        """Somebody says yes to whatever is asked."""
        desk, pipeline = self.stack.services.approvals, self.stack.services.pipeline
        who = self.session
        while not self._closing.wait(0.1):
            for asked in desk.listing(who.tenant_id, None, who.id):
                if asked.state == "pending":
                    vote = {"digest": asked.digest, "by": who.principal_id, "comment": None}
                    pipeline.vote(who.tenant_id, asked.id, Verdict.APPROVE, **vote)


def _read(given: dict[str, Any]) -> dict[str, Any]:
    lines = {"start_line": 1, "end_line": 1, "total_lines": 1}
    return {"path": given["path"], "content": "hello\n", **lines, "truncated": False, "sha256": None}


def _wrote(given: dict[str, Any]) -> dict[str, Any]:
    return {"path": given["path"], "bytes": 1, "created": True, "sha256": "0" * 64}
