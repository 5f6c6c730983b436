"""The gate before the MCP endpoint: every single request is let into exactly one session, or nowhere."""

from __future__ import annotations

import asyncio
import json
import logging
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
from codesdk.mcphost.discovery import Resource
from codesdk.mcphost.open_requests import Admitted, OpenRequests
from codesdk.mcphost.throttle import Throttle
from codesdk.tenancy.logins import LoginExpired

_log = logging.getLogger(__name__)
LOGINS = 16
"""Tokens of issuers that are looked at once: each may wait for its issuer, and none may hold up sessions' tokens."""
BODY_S = 60.0
"""Seconds in which a request's body must have come: 4 MiB at half a megabit a second."""
AGAIN_S = 1.0
"""Seconds after which a request that we could not look at may be sent again: databases restart in about one."""
_SUBJECT = "codesdk.subject"
_SCHEME = "bearer "
_ENDED = "This credential is not good any more."
_METHOD = b"mcp-method"
_LISTEN = b"subscriptions/listen"
_SESSION = b"codesdk-session"
"""Names the session, for credentials that do not name it themselves."""


class Admit(Protocol):
    """Finds who a request is for, in its session; called in a thread."""

    def __call__(self, credential: str, named: str | None, *, opens: bool, again: bool = False) -> Subject:
        """See `sessions.admission`: raises a Fault whose status says what it is."""
        ...


def subject_of(request: HTTPConnection | None) -> Subject:
    """The session that the gate let this request in for."""
    if request is None or not isinstance(subject := request.scope.get(_SUBJECT), Subject):
        raise RuntimeError("An MCP request reached a handler without passing the gate.")
    return subject


class TokenGate:
    """ASGI: lets requests with a good credential through, with their subject in the scope."""

    def __init__(
        self,
        app: ASGIApp,
        admit: Admit,
        resource: Resource,
        limiter: CapacityLimiter,
        throttle: Throttle,
        *,
        max_body: int,
    ) -> None:
        """`max_body`: bytes of one request; past it the SDK refuses as well, in words that no client shows."""
        self._app = app
        self._admit = admit
        self._resource = resource
        self._limiter = limiter
        self._login_limiter = CapacityLimiter(LOGINS)
        self._throttle = throttle
        self._max_body = max_body
        self.open_requests = OpenRequests(self._is_good)
        """What is being answered; somebody must `watch` it."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Look the credential up and pass on.

        Nothing is cached: a revoked token fails on its next request, and what is answered longer ends soon after.
        """
        if _in_url(scope):
            await _refuse(send, 400, "Never send a token in an address: it stands in logs. Send it as a header.")
            return
        token = _bearer(scope)
        if token is None:
            challenge = self._resource.challenge(scope, None)
            await _refuse(send, 401, "Send `Authorization: Bearer <session token>`.", challenge=challenge)
            return
        named = _named(scope)
        try:
            subject = await self._admitted(token, named, opens=scope["method"] == "POST")
        except Fault as fault:
            await self._turn_away(fault, scope, send)
            return
        # The SDK binds a handshake-era MCP session to this user; the same session id with another one is a 404.
        access = AccessToken(token="", client_id=subject.session_id, subject=subject.principal_id, scopes=[])
        scope["user"] = AuthenticatedUser(access)
        scope[_SUBJECT] = subject
        if after_s := self._throttle.enter(subject.session_id):
            await _refuse(send, 429, "This session makes too many requests. Nothing was run. Try again.", after_s)
            return
        try:
            admitted = Admitted(token, named, subject.session_id, brief=_is_brief(scope))
            with self.open_requests.answering(admitted, send) as answering:
                await self._serve(scope, receive, answering.send)
        finally:
            self._throttle.leave(subject.session_id)
        if answering.ended and not answering.begun:
            await _refuse(send, 401, _ENDED, challenge=self._resource.challenge(scope, "invalid_token"))
        elif answering.ended:
            await answering.finish()

    async def _admitted(self, token: str, named: str | None, *, opens: bool, again: bool = False) -> Subject:
        # A token of an issuer has three parts; our own secrets hold no dot.
        limiter = self._login_limiter if "." in token else self._limiter
        admit = partial(self._admit, token, named, opens=opens, again=again)
        return await to_thread.run_sync(admit, limiter=limiter)

    async def _is_good(self, admitted: Admitted) -> bool:
        try:
            subject = await self._admitted(admitted.credential, admitted.named, opens=False, again=True)
        except LoginExpired:
            # Issuers' tokens are good for minutes, and a client can renew none within a request: the next one needs another.
            return admitted.brief
        except Fault as fault:
            if fault.status < 500:  # noqa: PLR2004 (yours; what is away on our side says nothing of it)
                return False
            raise
        return subject.session_id == admitted.session

    async def _turn_away(self, fault: Fault, scope: Scope, send: Send) -> None:
        if fault.status >= 500:  # noqa: PLR2004 (HTTP's halves: yours, and ours)
            # What is wrong on our side stands in the log: whoever asks has not shown yet who they are.
            _log.warning("a credential could not be checked: %s", fault)
            told = f"This credential cannot be checked now. Nothing was run. Try again. [{fault.code}]"
            await _refuse(send, 503, told, AGAIN_S, code=fault.code)
            return
        error = {401: "invalid_token", 403: "insufficient_scope"}.get(fault.status)
        challenge = self._resource.challenge(scope, error) if error else None
        await _refuse(send, fault.status, str(fault), challenge=challenge)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        size = _declared(scope)
        body = _too_large(size, self._max_body) if size > self._max_body else await _body(receive, self._max_body)
        if isinstance(body, _Unread):
            await _refuse(send, body.status, body.message)
        else:
            await self._app(scope, _again(body, receive), send)


class _Unread(NamedTuple):
    """A body that was not taken."""

    status: int
    message: str


def _too_large(size: int, most: int) -> _Unread:
    return _Unread(
        413, f"This request has {size} bytes or more; at most {most} are taken. Nothing was run. Send it in parts."
    )


async def _body(receive: Receive, most: int) -> bytes | _Unread:
    """The whole body, which must come in time; it is JSON, so nothing can be done with a part of it."""
    gathered = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return _Unread(400, "The request ended too early. Nothing was run.")
                gathered += message.get("body", b"")
                if len(gathered) > most:
                    return _too_large(len(gathered), most)
                if not message.get("more_body", False):
                    return bytes(gathered)
    except TimeoutError:
        return _Unread(408, f"The request did not come within {BODY_S:.0f} seconds. Nothing was run.")


def _again(body: bytes, receive: Receive) -> Receive:
    """Gives the body that was read, then what the connection says next."""
    given = False

    async def next_message() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return next_message


def _bearer(scope: Scope) -> str | None:
    values = [value for name, value in scope["headers"] if name == b"authorization"]
    if len(values) != 1:
        return None
    text = values[0].decode("latin-1")
    return text[len(_SCHEME) :].strip() or None if text.lower().startswith(_SCHEME) else None


def _named(scope: Scope) -> str | None:
    values = [value.decode("latin-1").strip() for name, value in scope["headers"] if name == _SESSION]
    return ",".join(values) if values else None  # two of them are no session's id


def _is_brief(scope: Scope) -> bool:
    listens = (_METHOD, _LISTEN) in ((name, value.strip()) for name, value in scope["headers"])
    return scope["method"] == "POST" and not listens


def _in_url(scope: Scope) -> bool:
    query = scope.get("query_string", b"")
    return bool(query) and "access_token" in dict(parse_qsl(query.decode("latin-1"), keep_blank_values=True))


def _declared(scope: Scope) -> int:
    lengths = [value for name, value in scope["headers"] if name == b"content-length"]
    return int(lengths[0]) if len(lengths) == 1 and lengths[0].isdigit() else 0


async def _refuse(
    send: Send, status: int, message: str, after_s: float = 0.0, *, challenge: str | None = None, code: str = ""
) -> None:
    """`code`: of a fault of ours, after which the same request may succeed."""
    # A JSON-RPC body, since clients show its message; the status and the header are what RFC 6750 asks for.
    error: dict[str, object] = {"code": types.INTERNAL_ERROR if code else types.INVALID_REQUEST, "message": message}
    if code:
        error["data"] = {"code": code, "retryable": True}
    body = json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == 408:  # noqa: PLR2004
        headers.append((b"connection", b"close"))  # who sends too slowly is not waited for; who sends too much reads on
    if challenge is not None:
        headers.append((b"www-authenticate", challenge.encode("latin-1", "replace")))
    if after_s:
        headers.append((b"retry-after", str(ceil(after_s)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
