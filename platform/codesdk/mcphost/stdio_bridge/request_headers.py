"""What the host reads in the headers of a request, which a message that came over stdio does not have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mcp_types as types
from mcp.shared import inbound

_VERSION = inbound.MCP_PROTOCOL_VERSION_HEADER
NEW_SESSION = {"mcp-session-id": ""}
"""Begins an MCP session anew; the `Carrier` leaves the empty id away."""


class RequestHeaders:
    """Those of one client's messages; of the newer era a message says them itself."""

    def __init__(self) -> None:
        self.agreed: str | None = None
        """The version that the handshake came to."""
        self._mirrored: dict[str, dict[tuple[str, ...], str]] = {}

    def learn(self, tools: Any) -> None:
        """Note which arguments these tools want in headers, as their schemas say."""
        for tool in tools if isinstance(tools, list) else ():
            schema = tool.get("inputSchema")
            sound = inbound.find_invalid_x_mcp_header(schema) is None
            self._mirrored[str(tool.get("name"))] = inbound.x_mcp_header_map(schema) if sound else {}

    def of(self, message: types.JSONRPCMessage) -> dict[str, str]:
        """Those of this message."""
        if not isinstance(message, types.JSONRPCRequest) or (version := version_of(message)) is None:
            return {_VERSION: self.agreed} if self.agreed else {}
        named = {_VERSION: version, inbound.MCP_METHOD_HEADER: message.method}
        params = message.params or {}
        name = params.get(inbound.NAME_BEARING_METHODS.get(message.method, ""))
        if isinstance(name, str):
            named[inbound.MCP_NAME_HEADER] = name
        made = {key: inbound.encode_header_value(value) for key, value in named.items()}
        arguments = params.get("arguments")
        if message.method == "tools/call" and isinstance(name, str) and isinstance(arguments, Mapping):
            made.update(inbound.mcp_param_headers(self._mirrored.get(name, {}), arguments))
        return made


def version_of(message: types.JSONRPCRequest) -> str | None:
    """The version that a request of the newer era says; None: it is of the handshake era."""
    meta = (message.params or {}).get("_meta")
    version = meta.get(types.PROTOCOL_VERSION_META_KEY) if isinstance(meta, Mapping) else None
    return version if isinstance(version, str) and message.method != "initialize" else None
