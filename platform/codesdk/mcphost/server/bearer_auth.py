"""Authenticates every request to the MCP endpoint for exactly one session."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from functools import partial
from math import ceil
from typing import NamedTuple, Protocol
from urllib.parse import parse_qsl

import mcp_types as types
from anyio import CapacityLimiter, to_thread
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from codesdk.domain.subjects import Subject
from codesdk.errors import Fault
from codesdk.mcphost.message_check import check_body
from codesdk.mcphost.server.connections import ClientConnection, ClientConnections, ClientKey
from codesdk.mcphost.server.protected_resource import ProtectedResource
from codesdk.mcphost.server.request_registry import RequestCredential, RequestRegistry
from codesdk.mcphost.server.throttle import Throttle
from codesdk.tenancy.logins import LoginExpired

_log = logging.getLogger(__name__)
MAX_LOGIN_CHECKS = 16
"""Concurrent checks of issuers' tokens, which may wait for their issuer and must not delay session tokens."""
BODY_TIMEOUT_S = 60.0
"""Seconds for a request body to arrive: 4 MiB at half a megabit per second."""
RETRY_AFTER_S = 1.0
"""Sent as Retry-After when a credential can't be checked: databases restart in about a second."""
_SUBJECT_KEY = "codesdk.subject"
_CONNECTION_KEY = "codesdk.connection"
_SCHEME = "bearer "
_CREDENTIAL_ENDED = "This credential is not good any more."
_METHOD_HEADER = b"mcp-method"
_LISTEN = b"subscriptions/listen"
_MCP_SESSION_HEADER = b"mcp-session-id"
_SESSION_HEADER = b"codesdk-session"
"""Header naming the session, for credentials that don't name one."""


class AuthenticateRequest(Protocol):
    """Authenticates a request for its session; called in a thread."""

    def __call__(self, credential: str, named: str | None, *, opens: bool, again: bool = False) -> Subject:
        """See `sessions.authentication`. Raises a Fault with the HTTP status to answer with."""
        ...


def subject_of(request: HTTPConnection | None) -> Subject:
    """The subject that this request was authenticated for."""
    if request is None or not isinstance(subject := request.scope.get(_SUBJECT_KEY), Subject):
        raise RuntimeError("An MCP request reached a handler without authentication.")
    return subject


def connection_of(request: HTTPConnection | None) -> ClientConnection | None:
    """The connection of the handshake-era client that sent this request; None for a request without an MCP session."""
    found = request.scope.get(_CONNECTION_KEY) if request is not None else None
    return found if isinstance(found, ClientConnection) else None


class BearerAuthMiddleware:
    """ASGI: forwards requests with a valid credential, with their subject in the scope."""

    def __init__(
        self,
        app: ASGIApp,
        admit: AuthenticateRequest,
        resource: ProtectedResource,
        limiter: CapacityLimiter,
        throttle: Throttle,
        *,
        max_body: int,
    ) -> None:
        """`max_body`: bytes of a request body. The SDK has the same limit, but no client shows its error."""
        self._app = app
        self._admit = admit
        self._resource = resource
        self._limiter = limiter
        self._login_limiter = CapacityLimiter(MAX_LOGIN_CHECKS)
        self._throttle = throttle
        self._max_body = max_body
        self._connections = ClientConnections()
        self.open_requests = RequestRegistry(self._is_good)
        """The open requests; the caller must run its `watch`."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Authenticate and forward.

        Nothing is cached: a revoked token fails on its next request, and its open streams end soon after.
        """
        if _has_token_in_url(scope):
            await _send_error(send, 400, "Never send a token in an address: it stands in logs. Send it as a header.")
            return
        token = _bearer_token(scope)
        if token is None:
            challenge = self._resource.challenge(scope, None)
            await _send_error(send, 401, "Send `Authorization: Bearer <session token>`.", challenge=challenge)
            return
        named = _session_header(scope)
        try:
            subject = await self._authenticate(token, named, opens=scope["method"] == "POST")
        except Fault as fault:
            await self._reject(fault, scope, send)
            return
        # The SDK binds a handshake-era MCP session to this user; the same session id with another one is a 404.
        access = AccessToken(token="", client_id=subject.session_id, subject=subject.principal_id, scopes=[])
        scope["user"] = AuthenticatedUser(access)
        scope[_SUBJECT_KEY] = subject
        if after_s := self._throttle.enter(subject.session_id):
            await _send_error(send, 429, "This session makes too many requests. Nothing was run. Try again.", after_s)
            return
        try:
            admitted = RequestCredential(token, named, subject.session_id, brief=_has_bounded_answer(scope))
            with self.open_requests.answering(admitted, send) as answering:
                await self._forward_counted(scope, receive, answering.send, subject)
        finally:
            self._throttle.leave(subject.session_id)
        if answering.ended and not answering.begun:
            await _send_error(send, 401, _CREDENTIAL_ENDED, challenge=self._resource.challenge(scope, "invalid_token"))
        elif answering.ended:
            await answering.finish()

    async def _authenticate(self, token: str, named: str | None, *, opens: bool, again: bool = False) -> Subject:
        # An issuer's token (JWT) has three dot-separated parts; our own tokens have no dot.
        limiter = self._login_limiter if "." in token else self._limiter
        admit = partial(self._admit, token, named, opens=opens, again=again)
        return await to_thread.run_sync(admit, limiter=limiter)

    async def _is_good(self, admitted: RequestCredential) -> bool:
        try:
            subject = await self._authenticate(admitted.credential, admitted.named, opens=False, again=True)
        except LoginExpired:
            # Issuers' tokens last minutes, and a client can't renew one within a request.
            return admitted.brief
        except Fault as fault:
            if fault.status < 500:  # noqa: PLR2004 (a server error says nothing about the credential)
                return False
            raise
        return subject.session_id == admitted.session

    async def _reject(self, fault: Fault, scope: Scope, send: Send) -> None:
        if fault.status >= 500:  # noqa: PLR2004 (client and server errors)
            # Details go to the log only: the client isn't authenticated.
            _log.warning("a credential could not be checked: %s", fault)
            message = f"This credential cannot be checked now. Nothing was run. Try again. [{fault.code}]"
            await _send_error(send, 503, message, RETRY_AFTER_S, code=fault.code)
            return
        error = {401: "invalid_token", 403: "insufficient_scope"}.get(fault.status)
        challenge = self._resource.challenge(scope, error) if error else None
        await _send_error(send, fault.status, str(fault), challenge=challenge)

    async def _forward_counted(self, scope: Scope, receive: Receive, send: Send, subject: Subject) -> None:
        """Forward the request; while it is open, its handshake-era client counts as connected."""
        if (mcp_session := _mcp_session(scope)) is None:
            await self._forward(scope, receive, send)
            return
        key = ClientKey(subject.session_id, mcp_session)
        with self._connections.request(key, deletes=scope["method"] == "DELETE") as connection:
            scope[_CONNECTION_KEY] = connection
            await self._forward(scope, receive, send)

    async def _forward(self, scope: Scope, receive: Receive, send: Send) -> None:
        size = _content_length(scope)
        body = _too_large(size, self._max_body) if size > self._max_body else await _read_body(receive, self._max_body)
        if isinstance(body, _RejectedBody):
            await _send_error(send, body.status, body.message)
            return
        if scope["method"] == "POST":
            body, error = check_body(body)
            if error is not None:
                await _send_json(send, 400, error.model_dump_json(by_alias=True).encode())
                return
        await self._app(scope, _replay_body(body, receive), send)


class _RejectedBody(NamedTuple):
    """The error for a rejected body."""

    status: int
    message: str


def _too_large(size: int, most: int) -> _RejectedBody:
    return _RejectedBody(
        413, f"This request has {size} bytes or more; at most {most} are taken. Nothing was run. Send it in parts."
    )


async def _read_body(receive: Receive, most: int) -> bytes | _RejectedBody:
    """The whole body, or the error if it is too large, too slow or incomplete."""
    gathered = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return _RejectedBody(400, "The request ended too early. Nothing was run.")
                gathered += message.get("body", b"")
                if len(gathered) > most:
                    return _too_large(len(gathered), most)
                if not message.get("more_body", False):
                    return bytes(gathered)
    except TimeoutError:
        return _RejectedBody(408, f"The request did not come within {BODY_TIMEOUT_S:.0f} seconds. Nothing was run.")


def _replay_body(body: bytes, receive: Receive) -> Receive:
    """Replays the body that was read, then forwards the connection's messages."""
    given = False

    async def next_message() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return next_message


def _bearer_token(scope: Scope) -> str | None:
    values = [value for name, value in scope["headers"] if name == b"authorization"]
    if len(values) != 1:
        return None
    text = values[0].decode("latin-1")
    return text[len(_SCHEME) :].strip() or None if text.lower().startswith(_SCHEME) else None


def _session_header(scope: Scope) -> str | None:
    values = [value.decode("latin-1").strip() for name, value in scope["headers"] if name == _SESSION_HEADER]
    return ",".join(values) if values else None  # two values match no session id


def _mcp_session(scope: Scope) -> str | None:
    values = [value.decode("latin-1").strip() for name, value in scope["headers"] if name == _MCP_SESSION_HEADER]
    return values[0] if len(values) == 1 else None


def _has_bounded_answer(scope: Scope) -> bool:
    listens = (_METHOD_HEADER, _LISTEN) in ((name, value.strip()) for name, value in scope["headers"])
    return scope["method"] == "POST" and not listens


def _has_token_in_url(scope: Scope) -> bool:
    query = scope.get("query_string", b"")
    return bool(query) and "access_token" in dict(parse_qsl(query.decode("latin-1"), keep_blank_values=True))


def _content_length(scope: Scope) -> int:
    lengths = [value for name, value in scope["headers"] if name == b"content-length"]
    return int(lengths[0]) if len(lengths) == 1 and lengths[0].isdigit() else 0


async def _send_error(
    send: Send, status: int, message: str, after_s: float = 0.0, *, challenge: str | None = None, code: str = ""
) -> None:
    """`code`: of a fault on the server's side, after which the same request may succeed."""
    # A JSON-RPC body, because clients show its message; status and header follow RFC 6750.
    error: dict[str, object] = {"code": types.INTERNAL_ERROR if code else types.INVALID_REQUEST, "message": message}
    if code:
        error["data"] = {"code": code, "retryable": True}
    body = json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()
    headers: list[tuple[bytes, bytes]] = []
    if status == 408:  # noqa: PLR2004
        headers.append((b"connection", b"close"))  # a slow client is cut off; one that sent too much may read on
    if challenge is not None:
        headers.append((b"www-authenticate", challenge.encode("latin-1", "replace")))
    if after_s:
        headers.append((b"retry-after", str(ceil(after_s)).encode()))
    await _send_json(send, status, body, headers)


async def _send_json(send: Send, status: int, body: bytes, more: Sequence[tuple[bytes, bytes]] = ()) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
