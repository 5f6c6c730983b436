"""A persistent MCP client: it retries through every crash until it knows how its call ended."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import httpx2

PROTOCOL = "2026-07-28"
META = "io.modelcontextprotocol"
PATIENCE_S = 600.0
"""Seconds in which a call or a session must have come to an end, whatever dies meanwhile."""
AGAIN_S = 0.1
"""Before the second try; twice as long before each further one, up to a second."""
TIMEOUT = httpx2.Timeout(30.0, connect=5.0, read=120.0)
"""An answer may wait for an engine that is away; while it waits, the stream has comments."""
ENDED = ("completed", "failed", "denied")
BY_ID = ("running", "ready", "interrupted", "unknown")
"""It goes on, or has ended unheard: the answer is collected by the call's id."""


class End(NamedTuple):
    """How a call ended."""

    call: str
    code: str
    """`ok`, or the code of what went wrong."""
    output: str
    """What its command printed, or its file says, as far as it is known."""


class Lost(Exception):
    """The connection ended, or the answer says that it may be asked again."""


class Over(Exception):
    """The session was ended by somebody else: its token is none any more."""


class Opened(NamedTuple):
    """A session of ours."""

    id: str
    token: str


class Client:
    """One agent. Used from one thread."""

    def __init__(self, url: str, key: str, *, looks: bool) -> None:
        """`looks`: after a lost connection it looks in the log for its call first; else it sends the same call again."""
        self.lost_connections = 0
        self._http = httpx2.Client(base_url=url, timeout=TIMEOUT, trust_env=False)
        self._key = key
        self._looks = looks
        self._number = 0

    def close(self) -> None:
        """Hang up."""
        self._http.close()

    def open(self, from_session: str | None = None) -> tuple[Opened, bool]:
        """A session whose workspace is kept; whether it starts from the last snapshot of that ended one."""
        wish: dict[str, Any] = {"snapshots": True}
        if from_session is not None and self._ask("GET", f"/v1/sessions/{from_session}").get("snapshot_artifact"):
            wish["from_session"] = from_session
        made = self._ask("POST", "/v1/sessions", json=wish)
        return Opened(made["session"]["id"], made["token"]), "from_session" in wish

    def leave(self, session: Opened) -> None:
        """End it."""
        self._ask("DELETE", f"/v1/sessions/{session.id}")

    def call(self, session: Opened, tool: str, arguments: Mapping[str, Any]) -> End:
        """Make one call; its end, however often it must be asked for.

        Raises:
            AssertionError: it did not end in time.
        """
        asked: tuple[str, Mapping[str, Any]] = (tool, arguments)
        tries = Tries(f"{tool} {dict(arguments)} in {session.id}")
        for _ in tries:
            try:
                said = tries.last = self._speak(session, *asked)
            except Over:
                return End("", "SESSION_CLOSED", "")
            except Lost as lost:
                tries.last = lost
                if asked[0] == tool and self._looks and (known := self._find(session, arguments)):
                    asked = ("collect_result", {"call_id": known})
                continue
            told = said["_meta"]["codesdk/call"]
            if told["status"] in ENDED:
                return _end(said, told)
            if told["status"] == "waiting":  # an earlier one of that input was lost: it asks, and here nobody answers
                return End(told["tool_call_id"], "APPROVAL_PENDING", "")
            if told["status"] in BY_ID:
                asked = ("collect_result", {"call_id": told["tool_call_id"]})
            elif told.get("code") == "CALL_UNKNOWN":  # nobody knew whether it had been taken; it had not
                asked = (tool, arguments)
            else:
                assert told["status"] == "refused", said
                assert told["retryable"], said
        raise AssertionError("not reached")

    def _speak(self, session: Opened, tool: str, arguments: Mapping[str, Any]) -> Any:
        """One request over MCP; its result."""
        self._number += 1
        meta = {
            f"{META}/protocolVersion": PROTOCOL,
            f"{META}/clientInfo": {"name": "chaos", "version": "1"},
            f"{META}/clientCapabilities": {},
        }
        body = {
            "jsonrpc": "2.0",
            "id": self._number,
            "method": "tools/call",
            "params": {"name": tool.replace(".", "_"), "arguments": dict(arguments), "_meta": meta},
        }
        headers = {
            "authorization": f"Bearer {session.token}",
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": PROTOCOL,
            "mcp-method": "tools/call",
            "mcp-name": tool.replace(".", "_"),
        }
        try:
            with self._http.stream("POST", "/mcp", json=body, headers=headers) as response:
                if response.status_code >= 500 or response.status_code == 429:
                    raise Lost(f"{response.status_code} {response.read()!r}")
                if response.status_code == 401:
                    raise Over
                assert response.status_code == 200, (response.status_code, response.read())
                for message in _messages(response):
                    if message.get("id") == self._number:
                        break
                else:
                    raise Lost("the stream ended without an answer")
        except httpx2.TransportError as error:
            self.lost_connections += 1
            raise Lost(repr(error)) from error
        if "result" not in message:
            raise Lost(json.dumps(message))  # an error of JSON-RPC: what it is shows if it never ends
        return message["result"]

    def _find(self, session: Opened, arguments: Mapping[str, Any]) -> str | None:
        """The newest call of that input in the session's log."""
        found = self._ask("GET", f"/v1/sessions/{session.id}/events", params={"limit": 500})["events"]
        calls = [
            event["payload"]["tool_call_id"]
            for event in found
            if event["type"] == "tool.call.requested" and event["payload"].get("input") == dict(arguments)
        ]
        return calls[-1] if calls else None

    def _ask(self, method: str, path: str, **more: Any) -> Any:
        """One request of the HTTP API, until it is answered: another would not change what the first one did."""
        tries = Tries(f"{method} {path}")
        for _ in tries:
            try:
                answer = self._http.request(method, path, headers={"authorization": f"Bearer {self._key}"}, **more)
            except httpx2.TransportError as error:
                self.lost_connections += 1
                tries.last = error
                continue
            tries.last = f"{answer.status_code} {answer.text}"
            if answer.status_code < 400:
                return answer.json()
            problem = answer.json() if "json" in answer.headers.get("content-type", "") else {}
            assert problem.get("retryable") or answer.status_code >= 500, tries.last
        raise AssertionError("not reached")


class Tries:
    """Again and again, a little apart, until the patience is over."""

    def __init__(self, what: str) -> None:
        self.last: Any = None
        """What came of the last one; shown when there is none after it."""
        self._what = what

    def __iter__(self) -> Iterator[None]:
        until, pause_s = time.monotonic() + PATIENCE_S, AGAIN_S
        while True:
            yield
            assert time.monotonic() < until, f"not within {PATIENCE_S:.0f} s: {self._what}; last: {self.last}"
            time.sleep(pause_s)
            pause_s = min(1.0, 2 * pause_s)


def _messages(response: httpx2.Response) -> Iterator[dict[str, Any]]:
    if response.headers["content-type"].startswith("application/json"):
        response.read()
        yield response.json()
        return
    for line in response.iter_lines():
        if line.startswith("data:") and (data := line.removeprefix("data:").strip()):
            yield json.loads(data)


def printed(structured: Mapping[str, Any]) -> str:
    """What a command printed, or what a file says, of a result."""
    return str(structured.get("stdout", structured.get("content", "")))


def _end(said: Any, told: Any) -> End:
    output = printed(said.get("structuredContent") or {})
    code = "ok" if told["status"] == "completed" else str(told.get("code") or told["status"])
    return End(told["tool_call_id"], code, output)
