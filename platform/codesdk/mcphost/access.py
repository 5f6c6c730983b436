"""The gate before the MCP endpoint: a session token opens exactly its session, on every single request."""

from __future__ import annotations

import json
import logging

import mcp_types as types
from anyio import CapacityLimiter, to_thread
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from codesdk.domain.subjects import Subject
from codesdk.errors import Fault
from codesdk.tenancy.access import Action, Forbidden, Target, decide_access, require
from codesdk.tenancy.directory import Directory
from codesdk.tenancy.principal import Unauthenticated

_log = logging.getLogger(__name__)
_SUBJECT = "codesdk.subject"
_SCHEME = "bearer "


def subject_of(request: HTTPConnection | None) -> Subject:
    """The session that the gate let this request in for."""
    if request is None or not isinstance(subject := request.scope.get(_SUBJECT), Subject):
        raise RuntimeError("An MCP request reached a handler without passing the gate.")
    return subject


class TokenGate:
    """ASGI: lets requests with a good session token through, with their subject in the scope."""

    def __init__(self, app: ASGIApp, directory: Directory, limiter: CapacityLimiter, *, max_body: int) -> None:
        """`max_body`: bytes of one request; past it the SDK refuses as well, in words that no client shows."""
        self._app = app
        self._directory = directory
        self._limiter = limiter
        self._max_body = max_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Look the token up and pass on. Nothing is cached: a revoked token fails on its next request."""
        token = _bearer(scope)
        if token is None:
            await _refuse(send, 401, "Send `Authorization: Bearer <session token>`.")
            return
        try:
            subject = await to_thread.run_sync(self._admitted, token, limiter=self._limiter)
        except Unauthenticated as fault:
            await _refuse(send, 401, str(fault))
            return
        except Forbidden as fault:
            await _refuse(send, 403, str(fault))
            return
        except Fault as fault:
            _log.warning("a session token could not be checked: %s", fault)
            await _refuse(send, 503, str(fault))
            return
        if (size := _declared(scope)) > self._max_body:
            await _refuse(
                send,
                413,
                f"This request has {size} bytes; at most {self._max_body} are taken. Nothing was run. Send it in parts.",
            )
            return
        # The SDK binds a handshake-era MCP session to this user; the same session id with another one is a 404.
        access = AccessToken(token="", client_id=subject.session_id, subject=subject.principal_id, scopes=[])
        scope["user"] = AuthenticatedUser(access)
        scope[_SUBJECT] = subject
        await self._app(scope, receive, send)

    def _admitted(self, token: str) -> Subject:
        subject = self._directory.subject(token)
        target = Target(tenant_id=subject.tenant_id, session_id=subject.session_id)
        # The roles are those of now: a principal that may not run calls any more makes none in its old sessions.
        require(decide_access(subject, Action.CALLS_MAKE, target), Unauthenticated("This session token is not valid."))
        return subject


def _bearer(scope: Scope) -> str | None:
    values = [value for name, value in scope["headers"] if name == b"authorization"]
    if len(values) != 1:
        return None
    text = values[0].decode("latin-1")
    return text[len(_SCHEME) :].strip() or None if text.lower().startswith(_SCHEME) else None


def _declared(scope: Scope) -> int:
    lengths = [value for name, value in scope["headers"] if name == b"content-length"]
    return int(lengths[0]) if len(lengths) == 1 and lengths[0].isdigit() else 0


async def _refuse(send: Send, status: int, message: str) -> None:
    # A JSON-RPC body, since clients show its message; the status and the header are what RFC 6750 asks for.
    error = {"jsonrpc": "2.0", "id": None, "error": {"code": types.INVALID_REQUEST, "message": message}}
    body = json.dumps(error).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == 401:  # noqa: PLR2004
        headers.append((b"www-authenticate", b'Bearer realm="codesdk", error="invalid_token"'))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
