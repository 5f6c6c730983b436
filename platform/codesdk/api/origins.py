"""Which `Host` and `Origin` headers pass: a page in a browser must not reach a loopback service by a name of its own."""

from __future__ import annotations

from collections.abc import Collection

from starlette.types import ASGIApp, Receive, Scope, Send

from codesdk.api.problems import problem
from codesdk.errors import Fault

_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


class WrongHost(Fault):
    """The request names a host that this service does not go by."""

    code = "WRONG_HOST"
    status = 421


def host_names(listen: str, more: Collection[str] = ()) -> tuple[str, ...]:
    """Names that the service goes by: loopback, the address that it listens on, and what the operator adds."""
    own = f"[{listen}]" if ":" in listen else listen
    return tuple(dict.fromkeys((*_LOOPBACK, own, *more)))


def host_patterns(names: Collection[str]) -> list[str]:
    """Each name without a port and with any."""
    return [pattern for name in names for pattern in (name, f"{name}:*")]


def origin_patterns(names: Collection[str]) -> list[str]:
    """Origins of pages that those names serve themselves."""
    return [f"{scheme}://{pattern}" for scheme in ("http", "https") for pattern in host_patterns(names)]


class HostHeaderCheck:
    """ASGI: refuses requests under a foreign name, before anything else looks at them."""

    def __init__(self, app: ASGIApp, names: Collection[str]) -> None:
        self._app = app
        self._names = frozenset(name.lower() for name in names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on or refuse."""
        if scope["type"] == "http" and _host_header(scope) not in self._names:
            fault = WrongHost(
                "This service does not go by the name in the Host header.",
                advice="Use the address that it prints when it starts.",
            )
            await problem(fault)(scope, receive, send)
            return
        await self._app(scope, receive, send)


class DirectRoute:
    """ASGI: one exact path goes straight to an application of its own, past the framework's layers and router.

    They cost a fifth of the API's time for a tool call and do nothing for it: the MCP host has its own gate, limits
    and errors. A mount would answer `/mcp` with a redirect to `/mcp/`, one more round trip for every call.
    """

    def __init__(self, app: ASGIApp, path: str, behind: ASGIApp) -> None:
        self._app = app
        self._path = path
        self._behind = behind

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let through."""
        ours = scope["type"] == "http" and scope["path"] == self._path
        await (self._behind if ours else self._app)(scope, receive, send)


def _host_header(scope: Scope) -> str:
    values: list[str] = [value.decode("latin-1").lower() for name, value in scope["headers"] if name == b"host"]
    if len(values) != 1:
        return ""
    name, colon, port = values[0].rpartition(":")
    return name if colon and port.isdigit() else values[0]
