"""A server on stdin and stdout for a session that can't be used: its only tool says why.

Most agents go on without an MCP server that doesn't start, and end as if all were well. So this one starts, and its model
reads the reason.
"""

from __future__ import annotations

import asyncio
from typing import Any

import mcp_types as types
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage

from codesdk.errors import Fault

TOOL = "codesdk_unavailable"
_VERSION = "2025-11-25"
"""Of the protocol, if the client asks for none."""


def run(fault: Fault) -> None:
    """Serve until the client closes stdin."""
    asyncio.run(_serve(_reason(fault)))


def _reason(fault: Fault) -> str:
    return (
        f"CodeSDK is not available: {fault} [{fault.code}] None of its tools can be used in this session. Tell the user so,"
        " and do not try to do the work by other means. The user must start the agent again once this is solved."
    )


async def _serve(reason: str) -> None:
    async with stdio_server() as (said, say), say:
        async for item in said:
            if isinstance(item, SessionMessage) and isinstance(item.message, types.JSONRPCRequest):
                await say.send(SessionMessage(_answer(item.message, reason)))


def _answer(request: types.JSONRPCRequest, reason: str) -> types.JSONRPCMessage:
    result = _result(request.method, request.params or {}, reason)
    if result is None:
        error = types.ErrorData(code=types.METHOD_NOT_FOUND, message=reason)
        return types.JSONRPCError(jsonrpc="2.0", id=request.id, error=error)
    return types.JSONRPCResponse(jsonrpc="2.0", id=request.id, result=result)


def _result(method: str, params: dict[str, Any], reason: str) -> dict[str, Any] | None:
    match method:
        case "initialize":
            version = params.get("protocolVersion", _VERSION)
            server = {"name": "codesdk", "version": "0"}
            return {
                "protocolVersion": version,
                "capabilities": {"tools": {}},
                "serverInfo": server,
                "instructions": reason,
            }
        case "ping":
            return {}
        case "tools/list":
            return {"tools": [{"name": TOOL, "description": reason, "inputSchema": {"type": "object"}}]}
        case "tools/call":
            return {"content": [{"type": "text", "text": reason}], "isError": True}
        case _:
            return None
