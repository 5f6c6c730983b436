"""Passes messages between a client's stdio and the HTTP host: all of them, each as it is.

So the host hears from the client itself which version it speaks and how its user can be asked, and answers it as it
answers a client over HTTP. What only HTTP has is made up for here: an MCP session that the host has forgotten is begun
anew, and arguments that belong in headers are found in the list of tools.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

import mcp_types as types
from anyio import move_on_after
from mcp.shared.jsonrpc_dispatcher import cancelled_request_id_from_params
from mcp.shared.message import ClientMessageMetadata, SessionMessage

from codesdk.mcphost.carrier import SESSION_GONE
from codesdk.mcphost.headers import FRESH, Headers, version_of

GRACE_S = 5.0
"""Seconds in which requests that are under way are still answered when stdin has ended; then they are cancelled."""
LEAVE_S = 2.0
"""Seconds in which the host must take a cancel, and word that the client has left."""
_CANCELLED = "notifications/cancelled"
_LISTEN = "subscriptions/listen"

Send = Callable[[SessionMessage], Awaitable[None]]
Spawn = Callable[..., object]
"""Starts a task that lives as long as the relay."""
_Answer = types.JSONRPCResponse | types.JSONRPCError
_Id = types.RequestId | None
"""An error may come without."""


@dataclass
class _Asked:
    """A request of the client that is not answered yet."""

    message: types.JSONRPCRequest
    session: int = 0
    again: bool = False
    """Whether it went to the host a second time."""


_Remedy = Callable[[_Asked], Awaitable[None]]


class Relay:
    """Of one client. Used on one event loop."""

    def __init__(self, up: Send, down: Send, spawn: Spawn) -> None:
        """`up`: to the host; `down`: to the client."""
        self._up = up
        self._down = down
        self._spawn = spawn
        self._headers = Headers()
        self._asked: dict[_Id, _Asked] = {}
        self._answered = asyncio.Event()
        self._own: dict[_Id, asyncio.Future[_Answer]] = {}
        self._ids = (f"codesdk-mcp-{number}" for number in count())
        self._greeting: types.JSONRPCRequest | None = None
        self._greets = asyncio.Lock()
        self._session = 0
        self._subscribed: dict[str, None] = {}
        self._questions: dict[_Id, types.RequestId] = {}
        """Of the host, by the id that the client sees: an answer must not pass for that to another session's question."""

    async def from_client(self, message: types.JSONRPCMessage) -> None:
        """Pass on what came over stdin; what follows `initialize` waits for its answer, which names the MCP session."""
        if isinstance(message, types.JSONRPCRequest):
            asked = self._asked[message.id] = _Asked(message)
            await self._pass_up(asked)
            while message.method == "initialize" and message.id in self._asked:
                await self._change()
        elif isinstance(message, types.JSONRPCNotification):
            if message.method == _CANCELLED:
                self._close(cancelled_request_id_from_params(message.params))
            await self._send(message)
        elif (question := self._questions.pop(message.id, None)) is not None:
            await self._send(message.model_copy(update={"id": question}))

    async def from_host(self, message: types.JSONRPCMessage) -> None:
        """Pass on what the host sent."""
        if isinstance(message, types.JSONRPCRequest):
            shown = f"{self._session}.{message.id}"
            self._questions[shown] = message.id
            await self._say(message.model_copy(update={"id": shown}))
        elif isinstance(message, types.JSONRPCNotification):
            if message.method == _CANCELLED:
                shown = f"{self._session}.{cancelled_request_id_from_params(message.params)}"
                message = _cancelled(shown) if self._questions.pop(shown, None) is not None else message
            await self._say(message)
        elif (own := self._own.pop(message.id, None)) is not None:
            own.set_result(message)
        elif (asked := self._asked.get(message.id)) is not None:
            await self._answer(asked, message)

    async def finish(self) -> None:
        """Stdin has ended: wait for the answers under way; streams of changes never end by themselves."""
        with move_on_after(GRACE_S):
            while any(asked.message.method != _LISTEN for asked in self._asked.values()):
                await self._change()

    async def leave(self) -> None:
        """Cancel what is not answered, and say so."""
        late = list(self._asked)
        self._asked.clear()
        with move_on_after(LEAVE_S):
            for each in late:
                await self._send(_cancelled(each))
            for each in late:
                error = types.ErrorData(
                    code=types.CONNECTION_CLOSED, message="The bridge ended before the answer came."
                )
                await self._say(types.JSONRPCError(jsonrpc="2.0", id=each, error=error))
            if late and self._greeting is not None:
                await self._ask("ping", None)  # sent in order: once it is answered, the host has heard of the cancels

    async def _answer(self, asked: _Asked, answer: _Answer) -> None:
        if isinstance(answer, types.JSONRPCResponse):
            self._note(asked.message, answer.result)
        elif not asked.again and (remedy := self._remedy(asked.message, answer.error.code)) is not None:
            self._spawn(self._mend, asked, remedy)
            return
        await self._say(answer)
        if self._asked.get(asked.message.id) is asked:  # else the client has given its id to another
            self._close(asked.message.id)

    def _remedy(self, request: types.JSONRPCRequest, code: int) -> _Remedy | None:
        if code == SESSION_GONE and self._greeting is not None and request.method != "initialize":
            return self._greet_again
        if code == types.HEADER_MISMATCH and request.method == "tools/call" and version_of(request) is not None:
            return self._list_again
        return None

    def _note(self, request: types.JSONRPCRequest, result: dict[str, Any]) -> None:
        uri = str((request.params or {}).get("uri"))
        match request.method:
            case "initialize":
                self._greeting, self._headers.agreed = request, str(result.get("protocolVersion"))
            case "tools/list":
                self._headers.learn(result.get("tools"))
            case "resources/subscribe":
                self._subscribed[uri] = None
            case "resources/unsubscribe":
                self._subscribed.pop(uri, None)

    async def _mend(self, asked: _Asked, remedy: _Remedy) -> None:
        """Give the host what it lacked, and ask again; where that did not help, its second answer says so."""
        await remedy(asked)
        if asked.message.id in self._asked:
            asked.again = True
            await self._pass_up(asked)

    async def _greet_again(self, asked: _Asked) -> None:
        async with self._greets:
            if asked.session != self._session or self._greeting is None:
                return  # another request found out first
            self._session += 1
            for shown in list(self._questions):
                del self._questions[shown]
                await self._say(_cancelled(shown))
            answer = await self._ask("initialize", self._greeting.params)
            if isinstance(answer, types.JSONRPCResponse):
                await self._send(types.JSONRPCNotification(jsonrpc="2.0", method="notifications/initialized"))
                for uri in list(self._subscribed):
                    await self._ask("resources/subscribe", {"uri": uri})

    async def _list_again(self, asked: _Asked) -> None:
        meta = {**(asked.message.params or {}).get("_meta", {})}
        meta.pop("progressToken", None)
        answer = await self._ask("tools/list", {"_meta": meta})
        if isinstance(answer, types.JSONRPCResponse):
            self._headers.learn(answer.result.get("tools"))

    async def _ask(self, method: str, params: dict[str, Any] | None) -> _Answer:
        request = types.JSONRPCRequest(jsonrpc="2.0", id=next(self._ids), method=method, params=params)
        answer: asyncio.Future[_Answer] = asyncio.get_running_loop().create_future()
        self._own[request.id] = answer
        await self._send(request)
        return await answer

    async def _pass_up(self, asked: _Asked) -> None:
        asked.session = self._session
        await self._send(asked.message)

    async def _send(self, message: types.JSONRPCMessage) -> None:
        greets = isinstance(message, types.JSONRPCRequest) and message.method == "initialize"
        headers = FRESH if greets else self._headers.of(message)
        await self._up(SessionMessage(message, ClientMessageMetadata(headers=headers)))

    async def _say(self, message: types.JSONRPCMessage) -> None:
        await self._down(SessionMessage(message))

    def _close(self, request: _Id) -> None:
        self._asked.pop(request, None)
        self._answered.set()

    async def _change(self) -> None:
        self._answered.clear()
        await self._answered.wait()


def _cancelled(request: _Id) -> types.JSONRPCNotification:
    return types.JSONRPCNotification(jsonrpc="2.0", method=_CANCELLED, params={"requestId": request})
