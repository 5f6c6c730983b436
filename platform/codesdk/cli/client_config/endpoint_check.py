"""First half of `codesdk connect --check`: lists the session's tools with the official MCP client."""

from __future__ import annotations

import asyncio
from http import HTTPStatus

import httpx2
from mcp import Client as McpClient
from mcp.client.streamable_http import streamable_http_client

from codesdk.cli.client_config.clients import Endpoint
from codesdk.errors import ExitCode, Fault
from codesdk.mcphost.stdio_bridge.host_status import HostNotReady, check_ready
from codesdk.mcphost.stdio_bridge.main import HostUnreachable

LIMIT_S = 30.0
"""Seconds for the whole listing; a host answers in milliseconds."""
_REFUSED = (401, 403)
_UNKNOWN = 404


class TokenRefused(Fault):
    """The host answers, but rejects the token."""

    code = "TOKEN_REFUSED"
    status = 401
    exit_code = ExitCode.NO_PERMISSION


class NoSession(Fault):
    """The server at this address has no open session for this token."""

    code = "NO_SESSION"
    status = 404
    exit_code = ExitCode.UNAVAILABLE


def list_served_tools(to: Endpoint) -> list[str]:
    """Return the names of the session's tools.

    Raises:
        HostUnreachable, HostNotReady, TokenRefused, NoSession: why there are none.
    """
    return asyncio.run(_check(to))


async def _check(to: Endpoint) -> list[str]:
    headers = {**to.headers(to.token), "Accept": "text/event-stream"}
    try:
        async with (
            asyncio.timeout(LIMIT_S),
            httpx2.AsyncClient(headers=headers, timeout=LIMIT_S, trust_env=False) as http,
            http.stream("GET", to.url) as looked,
        ):
            # Without an MCP session no stream is opened; the status shows whether the token is valid.
            status = looked.status_code
            if status >= HTTPStatus.BAD_REQUEST:  # an error body ends; a stream would not
                await looked.aread()
                if unready := check_ready(to.url, looked):
                    raise unready
    except (OSError, httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise HostUnreachable(
            f"Nothing answers at {to.url}: {error or type(error).__name__}.",
            advice="Check that `codesdk up` runs there, and that this machine reaches the address.",
        ) from error
    if status in _REFUSED:
        raise TokenRefused(
            f"{to.url} rejects this token.",
            advice="Tokens end with their session, and after a day: `codesdk sessions open` gives a new one.",
        )
    if status == _UNKNOWN:
        raise NoSession(
            f"There is no session at {to.url}.",
            advice="The address ends in /mcp, and the session must be open: `codesdk sessions list` shows them.",
        )
    return await _list_tools(to)


async def _list_tools(to: Endpoint) -> list[str]:
    met: list[HostNotReady] = []

    async def look(answer: httpx2.Response) -> None:
        if answer.is_error:
            await answer.aread()
            met.extend(filter(None, [check_ready(to.url, answer)]))

    try:
        async with (
            asyncio.timeout(LIMIT_S),
            httpx2.AsyncClient(
                headers=to.headers(to.token), timeout=LIMIT_S, trust_env=False, event_hooks={"response": [look]}
            ) as http,
            McpClient(streamable_http_client(to.url, http_client=http)) as client,
        ):
            return sorted(tool.name for tool in (await client.list_tools()).tools)
    except Exception as error:  # the client wraps its errors in exception groups
        if met:
            raise met[0] from error
        raise NoSession(f"{to.url} is not an MCP host.", advice="Use the address that `codesdk up` printed.") from error
