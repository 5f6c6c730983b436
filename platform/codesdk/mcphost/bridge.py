"""The stdio bridge: an MCP server on stdin and stdout that passes everything to the HTTP host.

For clients that start their servers as programs. Nothing but the protocol is written to stdout; what goes wrong before
the first message is raised, as one line for stderr.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from importlib.metadata import version
from typing import Any

import httpx2
import mcp_types as types
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.server.stdio import stdio_server

from codesdk.errors import ExitCode, Fault
from codesdk.mcphost.carrier import Carrier
from codesdk.tenancy.principal import Unauthenticated

_TIMEOUT = httpx2.Timeout(10.0, read=120.0)
"""Seconds to connect and to write; to read: the host sends a ping every 15 s while a call runs."""
_MODERN = "2026-07-28"

_Context = ServerRequestContext[Any, Any]


class HostUnreachable(Fault):
    """No MCP host answers at that address."""

    code = "HOST_UNREACHABLE"
    retryable = True
    status = 502
    exit_code = ExitCode.UNAVAILABLE


def run(url: str, token: str) -> None:
    """Serve stdin and stdout until the client closes them.

    Raises:
        HostUnreachable: nothing answers at `url`, or what answers is no MCP host.
        Unauthenticated: the token opens no session.
    """
    try:
        asyncio.run(serve(url, token))
    except KeyboardInterrupt:
        return  # Ctrl-C ends a bridge as closing its stdin does


async def serve(url: str, token: str) -> None:
    """What `run` does, on a running loop; raises the same."""
    headers = {"Authorization": f"Bearer {token}"}
    await _probe(url, headers)
    async with AsyncExitStack() as opened:
        carrier = Carrier(httpx2.AsyncHTTPTransport())
        # Reached directly: a proxy of the environment would take precedence over our transport, and cannot see loopback.
        http = await opened.enter_async_context(
            httpx2.AsyncClient(headers=headers, timeout=_TIMEOUT, transport=carrier, trust_env=False)
        )
        host = await opened.enter_async_context(Client(streamable_http_client(url, http_client=http), cache=None))
        server = _forwarding(host)
        read, write = await opened.enter_async_context(stdio_server())
        await server.run(read, write, server.create_initialization_options())


async def _probe(url: str, headers: dict[str, str]) -> None:
    # The SDK's client says "Server returned an error response" to everything; people need to know which.
    asked = {**headers, "Accept": "text/event-stream", "MCP-Protocol-Version": _MODERN}
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
    if answer.status_code != httpx2.codes.METHOD_NOT_ALLOWED:
        raise _unreachable(url, f"it answers HTTP {answer.status_code}")


def _forwarding(host: Client) -> Server[Any]:
    async def list_tools(_ctx: _Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return await host.list_tools(cursor=params.cursor if params else None)

    async def call_tool(ctx: _Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        async def pass_on(progress: float, total: float | None, message: str | None) -> None:
            await ctx.session.report_progress(progress, total, message)

        wanted = bool(ctx.meta and ctx.meta.get("progress_token") is not None)
        # Cancelled by the client, this await is cancelled, and closes the host's stream: that cancels the call there.
        return await host.call_tool(params.name, params.arguments, progress_callback=pass_on if wanted else None)

    async def list_resources(_ctx: _Context, params: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
        return await host.list_resources(cursor=params.cursor if params else None)

    async def list_templates(
        _ctx: _Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        return await host.list_resource_templates(cursor=params.cursor if params else None)

    async def read(_ctx: _Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        return await host.read_resource(str(params.uri))

    async def list_prompts(_ctx: _Context, params: types.PaginatedRequestParams | None) -> types.ListPromptsResult:
        return await host.list_prompts(cursor=params.cursor if params else None)

    async def get_prompt(_ctx: _Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        return await host.get_prompt(params.name, params.arguments)

    async def complete(_ctx: _Context, params: types.CompleteRequestParams) -> types.CompleteResult:
        argument = {"name": params.argument.name, "value": params.argument.value}
        return await host.complete(params.ref, argument)

    return Server(
        "codesdk",
        version=version("codesdk"),
        title="CodeSDK",
        instructions=host.instructions,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
        on_completion=complete,
    )


def _unreachable(url: str, why: str) -> HostUnreachable:
    return HostUnreachable(
        f"No MCP host answers at {url}: {why}.", advice="Start it (`codesdk up`), and check the address."
    )
