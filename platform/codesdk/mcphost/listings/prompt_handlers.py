"""Handlers of `prompts/*` and `completion/complete`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import mcp_types as types
from anyio import CapacityLimiter, to_thread
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError

from codesdk.artifacts import ArtifactService
from codesdk.domain.subjects import Subject
from codesdk.errors import Fault
from codesdk.mcphost.server.bearer_auth import subject_of
from codesdk.mcphost.session_resources import uris
from codesdk.mcphost.session_resources.handlers import reject_cursor
from codesdk.registry import InvalidPromptArgument, Prompt

MAX_VALUES = 100
"""Values in one completion result; MCP's limit."""

_Context = ServerRequestContext[Any, Any]
PromptsOf = Callable[[Subject], dict[str, Prompt]]
"""The current prompts of a session's tenant."""


class PromptHandlers:
    """Serves the prompts of the tenant that a request is authenticated for."""

    def __init__(self, prompts: PromptsOf, artifacts: ArtifactService, limiter: CapacityLimiter) -> None:
        self._prompts = prompts
        self._artifacts = artifacts
        self._limiter = limiter

    def serve(self, server: Server[Any]) -> None:
        """Register the handlers."""
        server.add_request_handler("prompts/list", types.PaginatedRequestParams, self.list_prompts)
        server.add_request_handler("prompts/get", types.GetPromptRequestParams, self.get)
        server.add_request_handler("completion/complete", types.CompleteRequestParams, self.complete)

    def listed(self, subject: Subject) -> tuple[types.Prompt, ...]:
        """The prompts shown to a session."""
        return tuple(_to_mcp(prompt) for prompt in self._prompts(subject).values())

    async def list_prompts(self, ctx: _Context, params: types.PaginatedRequestParams | None) -> types.ListPromptsResult:
        """All prompts, on one page."""
        reject_cursor(params)
        shown = list(self.listed(subject_of(ctx.request)))
        return types.ListPromptsResult(prompts=shown, ttl_ms=0, cache_scope="private")

    async def get(self, ctx: _Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        """One prompt, with its arguments filled in."""
        prompt = self._prompts(subject_of(ctx.request)).get(params.name)
        if prompt is None:
            raise _unknown_prompt(params.name)
        try:
            filled = prompt.render(params.arguments or {})
        except InvalidPromptArgument as fault:
            raise MCPError(types.INVALID_PARAMS, str(fault)) from fault
        messages = [types.PromptMessage(role=role.value, content=types.TextContent(text=text)) for role, text in filled]
        return types.GetPromptResult(description=prompt.description, messages=messages)

    async def complete(self, ctx: _Context, params: types.CompleteRequestParams) -> types.CompleteResult:
        """Complete a value: a prompt argument's listed values, or the ids of the session's artifacts."""
        subject, argument = subject_of(ctx.request), params.argument
        if isinstance(params.ref, types.PromptReference):
            prompt = self._prompts(subject).get(params.ref.name)
            if prompt is None:
                raise _unknown_prompt(params.ref.name)
            spec = next((spec for spec in prompt.arguments if spec.name == argument.name), None)
            if spec is None:
                raise MCPError(types.INVALID_PARAMS, f"The prompt {prompt.name} has no argument {argument.name[:64]}.")
            return _completed(spec.values, argument.value)
        if params.ref.uri not in {template.uri_template for template in uris.TEMPLATES}:
            raise MCPError(types.INVALID_PARAMS, "There is no such resource template.")
        # No completion for paths: every key pressed would be a recorded tool call.
        known = await self._ids(subject) if (params.ref.uri, argument.name) == (uris.ARTIFACT_TEMPLATE, "id") else ()
        return _completed(known, argument.value)

    async def _ids(self, subject: Subject) -> list[str]:
        try:
            listing = self._artifacts.listing
            found = await to_thread.run_sync(
                listing, subject.tenant_id, subject.session_id, None, uris.PAGE_SIZE, limiter=self._limiter
            )
        except Fault as fault:
            raise MCPError(types.INTERNAL_ERROR, str(fault)) from fault
        return [each.id for each in found]


def _to_mcp(prompt: Prompt) -> types.Prompt:
    arguments = [
        types.PromptArgument(name=a.name, title=a.title, description=a.description, required=a.required)
        for a in prompt.arguments
    ]
    return types.Prompt(name=prompt.name, title=prompt.title, description=prompt.description, arguments=arguments)


def _completed(known: Iterable[str], prefix: str) -> types.CompleteResult:
    matches = [value for value in known if value.lower().startswith(prefix.lower())]
    shown = types.Completion(values=matches[:MAX_VALUES], total=len(matches), has_more=len(matches) > MAX_VALUES)
    return types.CompleteResult(completion=shown)


def _unknown_prompt(name: str) -> MCPError:
    return MCPError(types.INVALID_PARAMS, f"There is no prompt {name[:64]}. List the prompts to see their names.")
