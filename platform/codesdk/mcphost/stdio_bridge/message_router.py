"""Forwards messages between a client's stdio and the HTTP host, unchanged.

The host so learns the client's protocol version and capabilities from the client itself. The router adds what only HTTP
has: it starts a new MCP session when the host has lost one, and sets the headers that requests need.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

import mcp_types as types
from anyio import move_on_after
from mcp.shared import inbound
from mcp.shared.jsonrpc_dispatcher import cancelled_request_id_from_params
from mcp.shared.message import ClientMessageMetadata, SessionMessage

from codesdk.mcphost.stdio_bridge.host_transport import SESSION_GONE

GRACE_S = 5.0
"""Seconds after the end of stdin until pending requests are cancelled."""
SHUTDOWN_S = 2.0
"""Seconds for the host to accept the cancellations."""
_CANCELLED = "notifications/cancelled"
_LISTEN = "subscriptions/listen"
_VERSION = inbound.MCP_PROTOCOL_VERSION_HEADER
_NEW_SESSION = {"mcp-session-id": ""}
"""Starts a new MCP session; `HostTransport` drops the empty id."""

Send = Callable[[SessionMessage], Awaitable[None]]
Spawn = Callable[..., object]
"""Starts a task that lives as long as the router."""
_Answer = types.JSONRPCResponse | types.JSONRPCError
_Id = types.RequestId | None
"""Errors may have no id."""


@dataclass
class _PendingRequest:
    """A client request that is not answered yet."""

    message: types.JSONRPCRequest
    session: int = 0
    retried: bool = False
    """Whether it was sent a second time."""


_Remedy = Callable[[_PendingRequest], Awaitable[None]]


class MessageRouter:
    """Routes the messages of one client. Used on one event loop."""

    def __init__(self, up: Send, down: Send, spawn: Spawn) -> None:
        """`up`: to the host; `down`: to the client."""
        self._up = up
        self._down = down
        self._spawn = spawn
        self._headers = _RequestHeaders()
        self._pending: dict[_Id, _PendingRequest] = {}
        self._answered = asyncio.Event()
        self._own_requests: dict[_Id, asyncio.Future[_Answer]] = {}
        self._ids = (f"codesdk-mcp-{number}" for number in count())
        self._initialize_request: types.JSONRPCRequest | None = None
        self._initialize_lock = asyncio.Lock()
        self._session = 0
        self._subscribed: dict[str, None] = {}
        self._host_requests: dict[_Id, types.RequestId] = {}
        """The host's requests by the id shown to the client, so that a reply can't match another session's question."""

    async def from_client(self, message: types.JSONRPCMessage) -> None:
        """Forward a message from stdin. Messages after `initialize` wait for its answer, which names the MCP session."""
        if isinstance(message, types.JSONRPCRequest):
            pending = self._pending[message.id] = _PendingRequest(message)
            await self._forward(pending)
            while message.method == "initialize" and message.id in self._pending:
                await self._wait_for_answer()
        elif isinstance(message, types.JSONRPCNotification):
            if message.method == _CANCELLED:
                self._close(cancelled_request_id_from_params(message.params))
            await self._send_to_host(message)
        elif (question := self._host_requests.pop(message.id, None)) is not None:
            await self._send_to_host(message.model_copy(update={"id": question}))

    async def from_host(self, message: types.JSONRPCMessage) -> None:
        """Forward a message from the host."""
        if isinstance(message, types.JSONRPCRequest):
            client_id = f"{self._session}.{message.id}"
            self._host_requests[client_id] = message.id
            await self._send_to_client(message.model_copy(update={"id": client_id}))
        elif isinstance(message, types.JSONRPCNotification):
            if message.method == _CANCELLED:
                client_id = f"{self._session}.{cancelled_request_id_from_params(message.params)}"
                message = _cancelled(client_id) if self._host_requests.pop(client_id, None) is not None else message
            await self._send_to_client(message)
        elif (own := self._own_requests.pop(message.id, None)) is not None:
            own.set_result(message)
        elif (pending := self._pending.get(message.id)) is not None:
            await self._answer(pending, message)

    async def finish(self) -> None:
        """Stdin has ended: wait for pending answers, except of listening streams, which never end."""
        with move_on_after(GRACE_S):
            while any(pending.message.method != _LISTEN for pending in self._pending.values()):
                await self._wait_for_answer()

    async def leave(self) -> None:
        """Cancel pending requests, and answer each with an error."""
        unanswered = list(self._pending)
        self._pending.clear()
        with move_on_after(SHUTDOWN_S):
            for each in unanswered:
                await self._send_to_host(_cancelled(each))
            for each in unanswered:
                error = types.ErrorData(
                    code=types.CONNECTION_CLOSED, message="The bridge ended before the answer came."
                )
                await self._send_to_client(types.JSONRPCError(jsonrpc="2.0", id=each, error=error))
            if unanswered and self._initialize_request is not None:
                await self._request("ping", None)  # sent in order: its answer confirms the cancellations

    async def _answer(self, pending: _PendingRequest, answer: _Answer) -> None:
        if isinstance(answer, types.JSONRPCResponse):
            self._record_result(pending.message, answer.result)
        elif not pending.retried and (remedy := self._remedy(pending.message, answer.error.code)) is not None:
            self._spawn(self._retry, pending, remedy)
            return
        await self._send_to_client(answer)
        if self._pending.get(pending.message.id) is pending:  # otherwise the client has reused its id
            self._close(pending.message.id)

    def _remedy(self, request: types.JSONRPCRequest, code: int) -> _Remedy | None:
        if code == SESSION_GONE and self._initialize_request is not None and request.method != "initialize":
            return self._reinitialize
        if code == types.HEADER_MISMATCH and request.method == "tools/call" and _version_of(request) is not None:
            return self._relist_tools
        return None

    def _record_result(self, request: types.JSONRPCRequest, result: dict[str, Any]) -> None:
        uri = str((request.params or {}).get("uri"))
        match request.method:
            case "initialize":
                self._initialize_request, self._headers.agreed = request, str(result.get("protocolVersion"))
            case "tools/list":
                self._headers.learn(result.get("tools"))
            case "resources/subscribe":
                self._subscribed[uri] = None
            case "resources/unsubscribe":
                self._subscribed.pop(uri, None)

    async def _retry(self, pending: _PendingRequest, remedy: _Remedy) -> None:
        """Apply the remedy and send the request again, once."""
        await remedy(pending)
        if pending.message.id in self._pending:
            pending.retried = True
            await self._forward(pending)

    async def _reinitialize(self, pending: _PendingRequest) -> None:
        async with self._initialize_lock:
            if pending.session != self._session or self._initialize_request is None:
                return  # another request has done it
            self._session += 1
            for client_id in list(self._host_requests):
                del self._host_requests[client_id]
                await self._send_to_client(_cancelled(client_id))
            answer = await self._request("initialize", self._initialize_request.params)
            if isinstance(answer, types.JSONRPCResponse):
                await self._send_to_host(types.JSONRPCNotification(jsonrpc="2.0", method="notifications/initialized"))
                for uri in list(self._subscribed):
                    await self._request("resources/subscribe", {"uri": uri})

    async def _relist_tools(self, pending: _PendingRequest) -> None:
        meta = {**(pending.message.params or {}).get("_meta", {})}
        meta.pop("progressToken", None)
        answer = await self._request("tools/list", {"_meta": meta})
        if isinstance(answer, types.JSONRPCResponse):
            self._headers.learn(answer.result.get("tools"))

    async def _request(self, method: str, params: dict[str, Any] | None) -> _Answer:
        request = types.JSONRPCRequest(jsonrpc="2.0", id=next(self._ids), method=method, params=params)
        answer: asyncio.Future[_Answer] = asyncio.get_running_loop().create_future()
        self._own_requests[request.id] = answer
        await self._send_to_host(request)
        return await answer

    async def _forward(self, pending: _PendingRequest) -> None:
        pending.session = self._session
        await self._send_to_host(pending.message)

    async def _send_to_host(self, message: types.JSONRPCMessage) -> None:
        is_initialize = isinstance(message, types.JSONRPCRequest) and message.method == "initialize"
        headers = _NEW_SESSION if is_initialize else self._headers.of(message)
        await self._up(SessionMessage(message, ClientMessageMetadata(headers=headers)))

    async def _send_to_client(self, message: types.JSONRPCMessage) -> None:
        await self._down(SessionMessage(message))

    def _close(self, request: _Id) -> None:
        self._pending.pop(request, None)
        self._answered.set()

    async def _wait_for_answer(self) -> None:
        self._answered.clear()
        await self._answered.wait()


def _cancelled(request: _Id) -> types.JSONRPCNotification:
    return types.JSONRPCNotification(jsonrpc="2.0", method=_CANCELLED, params={"requestId": request})


class _RequestHeaders:
    """HTTP headers for a client's messages: from the handshake, or from the message itself in the newer era."""

    def __init__(self) -> None:
        self.agreed: str | None = None
        """The protocol version agreed in the handshake."""
        self._mirrored: dict[str, dict[tuple[str, ...], str]] = {}

    def learn(self, tools: Any) -> None:
        """Record which arguments these tools mirror in headers, from their schemas."""
        for tool in tools if isinstance(tools, list) else ():
            schema = tool.get("inputSchema")
            sound = inbound.find_invalid_x_mcp_header(schema) is None
            self._mirrored[str(tool.get("name"))] = inbound.x_mcp_header_map(schema) if sound else {}

    def of(self, message: types.JSONRPCMessage) -> dict[str, str]:
        """The headers of a message."""
        if not isinstance(message, types.JSONRPCRequest) or (version := _version_of(message)) is None:
            return {_VERSION: self.agreed} if self.agreed else {}
        named = {_VERSION: version, inbound.MCP_METHOD_HEADER: message.method}
        params = message.params or {}
        name = params.get(inbound.NAME_BEARING_METHODS.get(message.method, ""))
        if isinstance(name, str):
            named[inbound.MCP_NAME_HEADER] = name
        made = {key: inbound.encode_header_value(value) for key, value in named.items()}
        arguments = params.get("arguments")
        if message.method == "tools/call" and isinstance(name, str) and isinstance(arguments, Mapping):
            made.update(inbound.mcp_param_headers(self._mirrored.get(name, {}), arguments))
        return made


def _version_of(message: types.JSONRPCRequest) -> str | None:
    """The protocol version in a newer-era request; None for the handshake era."""
    meta = (message.params or {}).get("_meta")
    version = meta.get(types.PROTOCOL_VERSION_META_KEY) if isinstance(meta, Mapping) else None
    return version if isinstance(version, str) and message.method != "initialize" else None
