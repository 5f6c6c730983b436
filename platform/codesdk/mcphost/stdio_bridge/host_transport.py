"""HTTP transport that turns connection errors into JSON-RPC errors: the SDK's client ends all calls at an exception.

It also reports a lost MCP session with its own error code and allows a new one to start; the SDK's transport keeps the id.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import cast

import httpx2
import mcp_types as types

SESSION_GONE = -32092
"""JSON-RPC error code of the bridge: the host doesn't know the request's MCP session."""
_SESSION_HEADER = "mcp-session-id"


class HostTransport(httpx2.AsyncBaseTransport):
    """Answers a request whose connection failed with a JSON-RPC error."""

    def __init__(self, inner: httpx2.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """The host's response, or a JSON-RPC error."""
        if request.headers.get(_SESSION_HEADER) == "":
            del request.headers[_SESSION_HEADER]
        try:
            response = await self._inner.handle_async_request(request)
        except httpx2.TransportError as error:
            message = f"No MCP host answers at {request.url}: {error or type(error).__name__}. Start it (`codesdk up`)."
            return _error_response(502, types.INTERNAL_ERROR, message)
        if response.status_code == httpx2.codes.NOT_FOUND and _SESSION_HEADER in request.headers:
            await response.aclose()
            return _error_response(404, SESSION_GONE, "The MCP host does not know this MCP session any more.")
        return httpx2.Response(
            response.status_code,
            headers=response.headers,
            stream=_TolerantStream(cast("httpx2.AsyncByteStream", response.stream)),
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        """Close the connections."""
        await self._inner.aclose()


class _TolerantStream(httpx2.AsyncByteStream):
    """Ends when its connection breaks; the client then reports a missing answer."""

    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._inner:
                yield chunk
        except httpx2.TransportError:
            return

    async def aclose(self) -> None:
        await self._inner.aclose()


def _error_response(status: int, code: int, message: str) -> httpx2.Response:
    body = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}}
    return httpx2.Response(status, json=body)
