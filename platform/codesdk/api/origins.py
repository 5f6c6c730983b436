"""Checks `Host` and `Origin` headers, so that a web page can't reach a loopback service by DNS rebinding."""

from __future__ import annotations

from collections.abc import Collection

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from codesdk.api.problems import problem
from codesdk.errors import Fault

_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


class WrongHost(Fault):
    """The Host header names a host that this service doesn't have."""

    code = "WRONG_HOST"
    status = 421


def host_names(listen: str, more: Collection[str] = ()) -> tuple[str, ...]:
    """The service's own names: loopback, the address it listens on, and those the operator adds."""
    own = f"[{listen}]" if ":" in listen else listen
    return tuple(dict.fromkeys((*_LOOPBACK, own, *more)))


class HostHeaderCheck:
    """ASGI: rejects requests for a foreign host before anything else handles them."""

    def __init__(self, app: ASGIApp, names: Collection[str]) -> None:
        self._app = app
        self._names = frozenset(name.lower() for name in names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward or reject."""
        if scope["type"] == "http" and _host_header(scope) not in self._names:
            fault = WrongHost(
                "This service does not have the name in the Host header.",
                advice="Use the address that it prints when it starts. Where it has another name, set CODESDK_PUBLIC_URL to"
                " its URL, or add the name to CODESDK_ALLOWED_HOSTS.",
            )
            await problem(fault)(scope, receive, send)
            return
        await self._app(scope, receive, send)


class DirectRoute:
    """ASGI: sends one exact path straight to its own application, bypassing the framework's middleware and router.

    Those cost a fifth of the API's time for a tool call and do nothing for it: the MCP host has its own authentication,
    limits and errors. A mount would answer `/mcp` with a redirect to `/mcp/`, one more round trip for every call.
    Requests from web pages of other origins are rejected, as MCP requires.
    """

    def __init__(self, app: ASGIApp, path: str, behind: ASGIApp, names: Collection[str]) -> None:
        self._app = app
        self._path = path
        self._behind = behind
        self._names = frozenset(name.lower() for name in names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Route, and reject a foreign origin."""
        if scope["type"] != "http" or scope["path"] != self._path:
            await self._app(scope, receive, send)
        elif all(_origin_host(origin) in self._names for origin in _headers(scope, b"origin")):
            await self._behind(scope, receive, send)
        else:
            said = "Invalid Origin header: add its host to CODESDK_ALLOWED_HOSTS, if pages of that host may call tools."
            await PlainTextResponse(said, 403)(scope, receive, send)


def _headers(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1").lower() for key, value in scope["headers"] if key == name]


def _host_header(scope: Scope) -> str:
    values = _headers(scope, b"host")
    return _without_port(values[0]) if len(values) == 1 else ""


def _origin_host(origin: str) -> str:
    scheme, _, authority = origin.partition("://")
    return _without_port(authority) if scheme in ("http", "https") else ""


def _without_port(authority: str) -> str:
    name, colon, port = authority.rpartition(":")
    return name if colon and port.isdigit() else authority
