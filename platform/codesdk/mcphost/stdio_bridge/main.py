"""The stdio bridge: an MCP server on stdin and stdout that forwards everything to the HTTP host.

For clients that start their servers as programs. Only protocol messages go to stdout; errors before the first message are
raised, as one line for stderr.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterable, Awaitable, Callable
from typing import cast

import anyio
import httpx2
import mcp_types as types
from mcp.client.streamable_http import streamable_http_client
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage

from codesdk.errors import ExitCode, Fault
from codesdk.mcphost.stdio_bridge.client_lines import ClientLines
from codesdk.mcphost.stdio_bridge.host_status import check_ready
from codesdk.mcphost.stdio_bridge.host_transport import HostTransport
from codesdk.mcphost.stdio_bridge.message_router import SHUTDOWN_S, MessageRouter, Send
from codesdk.mcphost.tool_calls.caller import WAIT_HEADER
from codesdk.tenancy.principal import Unauthenticated

_TIMEOUT = httpx2.Timeout(10.0, read=120.0)
"""Seconds to connect, write and read. The host sends a ping every 15 s while a call runs."""
_PROTOCOL_VERSION = "2026-07-28"

_Handler = Callable[[types.JSONRPCMessage], Awaitable[None]]


class HostUnreachable(Fault):
    """No MCP host answers at the URL."""

    code = "HOST_UNREACHABLE"
    retryable = True
    status = 502
    exit_code = ExitCode.UNAVAILABLE


def run(url: str, token: str, wait_s: int | None = None) -> None:
    """Serve stdin and stdout until the client closes them and pending requests are answered.

    `wait_s`: seconds within which each call is answered (`CodeSDK-Wait`); None: the host's setting.

    Raises:
        HostUnreachable: nothing answers at `url`, or it is not an MCP host.
        HostNotReady: the host can't serve now.
        Unauthenticated: the session token is not valid.
    """
    timed = {} if wait_s is None else {WAIT_HEADER: str(wait_s)}
    bridge = _Bridge(url, {"Authorization": f"Bearer {token}", **timed})
    with asyncio.Runner() as runner:
        try:
            runner.run(bridge.serve())
        except KeyboardInterrupt:
            # Ctrl-C, or a signal from the agent's host: cancel pending requests. The tasks still run.
            runner.run(bridge.leave())


class _Bridge:
    def __init__(self, url: str, headers: dict[str, str]) -> None:
        self._url = url
        self._headers = headers
        self._router: MessageRouter | None = None
        self._say: Send | None = None
        self._started = asyncio.Event()
        """Set once lines to the client can be written."""

    async def serve(self) -> None:
        """Serve; raises as `run` does."""
        await _probe(self._url, self._headers)
        try:
            await self._run()
        except* (BrokenPipeError, anyio.BrokenResourceError):
            pass  # the client has closed stdout

    async def leave(self) -> None:
        """Cancel pending requests before stdin ends."""
        if self._router is not None:
            with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                await self._router.leave()

    async def _reject(self, error: types.JSONRPCError) -> None:
        await self._started.wait()
        if self._say is not None:
            await self._say(SessionMessage(error))

    async def _run(self) -> None:
        # No proxy from the environment: it would bypass our transport, and can't reach loopback.
        transport = HostTransport(httpx2.AsyncHTTPTransport())
        # Not sys.stdin: a thread may still wait in it when the interpreter closes it, which would never end.
        stdin = os.fdopen(os.dup(sys.stdin.fileno()), "rb", closefd=False)
        lines = ClientLines(anyio.wrap_file(stdin), self._reject)
        async with (
            httpx2.AsyncClient(headers=self._headers, timeout=_TIMEOUT, transport=transport, trust_env=False) as http,
            stdio_server(stdin=cast("anyio.AsyncFile[str]", lines)) as (said, say),
            say,
        ):
            self._say = say.send
            self._started.set()
            with anyio.CancelScope() as leaving:
                # Unlimited: one answer may hold 1 MiB of an artifact, as base64.
                async with (
                    streamable_http_client(self._url, http_client=http, max_sse_event_size=None) as (answers, ask),
                    anyio.create_task_group() as tasks,
                ):
                    self._router = router = MessageRouter(ask.send, say.send, tasks.start_soon)
                    tasks.start_soon(_for_each_message, answers, router.from_host)
                    await _for_each_message(said, router.from_client)
                    await router.finish()
                    await router.leave()
                    tasks.cancel_scope.cancel()
                    leaving.deadline = anyio.current_time() + SHUTDOWN_S


async def _for_each_message(messages: AsyncIterable[SessionMessage | Exception], take: _Handler) -> None:
    async for item in messages:
        if isinstance(item, SessionMessage):  # otherwise a line that is not a message
            await take(item.message)


async def _probe(url: str, headers: dict[str, str]) -> None:
    # The SDK's client reports every error as "Server returned an error response".
    asked = {**headers, "Accept": "text/event-stream", "MCP-Protocol-Version": _PROTOCOL_VERSION}
    try:
        async with httpx2.AsyncClient(timeout=_TIMEOUT, trust_env=False) as http:
            answer = await http.get(url, headers=asked)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise _unreachable(url, str(error) or type(error).__name__) from error
    if answer.status_code == httpx2.codes.UNAUTHORIZED:
        raise Unauthenticated(
            "The MCP host does not accept this session token: it is wrong, expired, or its session is closed.",
            advice="Open a session (`codesdk up`, or POST /v1/sessions) and use its token.",
        )
    if unready := check_ready(url, answer):
        raise unready
    if answer.status_code != httpx2.codes.METHOD_NOT_ALLOWED:
        raise _unreachable(url, f"it answers HTTP {answer.status_code}")


def _unreachable(url: str, why: str) -> HostUnreachable:
    return HostUnreachable(
        f"No MCP host answers at {url}: {why}.", advice="Start it (`codesdk up`), and check the address."
    )
