"""Handlers of `resources/*`: a session's artifacts and workspace files."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import mcp_types as types
from anyio import CapacityLimiter, to_thread
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from codesdk.artifacts import ArtifactService, ArtifactUnknown
from codesdk.errors import Fault
from codesdk.mcphost.server.bearer_auth import subject_of
from codesdk.mcphost.session_resources import uris
from codesdk.mcphost.session_resources.uris import ArtifactPart, ResourceList
from codesdk.mcphost.tool_calls.answers import DETAILS_KEY, READ_TOOL, Answer

MAX_FILE_BYTES = 256 * 1024
"""Bytes of a workspace file per read."""
_HANDSHAKE_NOT_FOUND = -32002
"""Error code for a missing resource in the handshake era; the newer era uses invalid params."""

_Context = ServerRequestContext[Any, Any]
RunCall = Callable[[_Context, types.CallToolRequestParams], Awaitable[Answer]]


class ResourceHandlers:
    """Serves the resources of the session that a request is authenticated for."""

    def __init__(self, artifacts: ArtifactService, run: RunCall, limiter: CapacityLimiter) -> None:
        """`run`: makes a tool call for the request's session."""
        self._artifact_list = ResourceList(artifacts)
        self._run = run
        self._limiter = limiter

    async def list_resources(
        self, ctx: _Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        """The session's artifacts, a page at a time."""
        after = params.cursor if params else None
        try:
            shown, then = await to_thread.run_sync(
                self._artifact_list.listing, subject_of(ctx.request), after, limiter=self._limiter
            )
        except ArtifactUnknown as fault:
            raise MCPError(types.INVALID_PARAMS, "This cursor is not one of this list.") from fault
        except Fault as fault:
            raise MCPError(types.INTERNAL_ERROR, str(fault)) from fault
        return types.ListResourcesResult(resources=shown, next_cursor=then, ttl_ms=0, cache_scope="private")

    async def list_templates(
        self, _ctx: _Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        """The templates of artifact and file addresses."""
        reject_cursor(params)
        return types.ListResourceTemplatesResult(resource_templates=uris.TEMPLATES, ttl_ms=0, cache_scope="private")

    async def read(self, ctx: _Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        """An artifact's bytes, or a file's lines, which are read by a tool call under policy."""
        uri = str(params.uri)
        wanted = uris.parse_uri(uri)
        if wanted is None:
            raise _not_found(ctx, uri)
        if isinstance(wanted, ArtifactPart):
            try:
                found = await to_thread.run_sync(
                    self._artifact_list.read, subject_of(ctx.request), wanted, uri, limiter=self._limiter
                )
            except Fault as fault:
                raise MCPError(types.INTERNAL_ERROR, str(fault)) from fault
            if found is None:
                raise _not_found(ctx, uri)
            return found
        return await self._read_file(ctx, wanted.arguments, uri)

    async def _read_file(self, ctx: _Context, arguments: dict[str, Any], uri: str) -> types.ReadResourceResult:
        # A resource is read for a program: it takes more than a model's page.
        arguments = {"max_bytes": MAX_FILE_BYTES, **arguments}
        answer = await self._run(ctx, types.CallToolRequestParams(name=READ_TOOL, arguments=arguments))
        if not isinstance(answer, types.CallToolResult):
            raise MCPError(
                types.INVALID_REQUEST, f"Reading this file needs approval: call {READ_TOOL}, which can ask for it."
            )
        found = answer.structured_content
        if answer.is_error or not isinstance(found, dict):
            message = " ".join(part.text for part in answer.content if isinstance(part, types.TextContent))
            if (answer.meta or {}).get(DETAILS_KEY, {}).get("code") == "NOT_FOUND":
                raise _not_found(ctx, uri)
            raise MCPError(types.INVALID_REQUEST, message, data=answer.meta)
        image = next((part for part in answer.content if isinstance(part, types.ImageContent)), None)
        if image is not None:
            blob = types.BlobResourceContents(uri=uri, mime_type=image.mime_type, blob=image.data)
            return types.ReadResourceResult(contents=[blob], ttl_ms=0, cache_scope="private")
        part = {name: found[name] for name in ("start_line", "end_line", "total_lines", "truncated") if name in found}
        return types.ReadResourceResult(
            contents=[types.TextResourceContents(uri=uri, mime_type="text/plain", text=str(found.get("content", "")))],
            ttl_ms=0,
            cache_scope="private",
            _meta={"codesdk/part": part},
        )


def reject_cursor(params: types.PaginatedRequestParams | None) -> None:
    """Reject a cursor for a list that has one page.

    Raises:
        MCPError: the request has a cursor.
    """
    if params is not None and params.cursor is not None:
        raise MCPError(types.INVALID_PARAMS, "This cursor is not one of this list.")


def _not_found(ctx: _Context, uri: str) -> MCPError:
    code = types.INVALID_PARAMS if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS else _HANDSHAKE_NOT_FOUND
    return MCPError(code, "There is no such resource in this session.", data={"uri": uri})
