"""The handlers of `prompts/*` and `completion/complete`: what the registry's prompts are in the words of the protocol."""

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
"""Values in one answer, as MCP bounds it."""

_Context = ServerRequestContext[Any, Any]
PromptsOf = Callable[[Subject], dict[str, Prompt]]
"""The prompts of a session's tenant now."""


class PromptHandlers:
    """Serves the prompts of one session's tenant at a time."""

    def __init__(self, prompts: PromptsOf, artifacts: ArtifactService, limiter: CapacityLimiter) -> None:
        self._prompts = prompts
        self._artifacts = artifacts
        self._limiter = limiter

    def serve(self, server: Server[Any]) -> None:
        """Add the handlers."""
        server.add_request_handler("prompts/list", types.PaginatedRequestParams, self.list_prompts)
        server.add_request_handler("prompts/get", types.GetPromptRequestParams, self.get)
        server.add_request_handler("completion/complete", types.CompleteRequestParams, self.complete)

    def listed(self, subject: Subject) -> tuple[types.Prompt, ...]:
        """What a client of that session is shown."""
        return tuple(_to_mcp(prompt) for prompt in self._prompts(subject).values())

    async def list_prompts(self, ctx: _Context, params: types.PaginatedRequestParams | None) -> types.ListPromptsResult:
        """All of them, on one page."""
        reject_cursor(params)
        shown = list(self.listed(subject_of(ctx.request)))
        return types.ListPromptsResult(prompts=shown, ttl_ms=0, cache_scope="private")

    async def get(self, ctx: _Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        """One of them, filled."""
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
        """What begins as the given value does: a prompt's listed values, or the ids of the session's artifacts."""
        subject, argument = subject_of(ctx.request), params.argument
        if isinstance(params.ref, types.PromptReference):
            prompt = self._prompts(subject).get(params.ref.name)
            if prompt is None:
                raise _unknown_prompt(params.ref.name)
            argument_spec = next(
                (argument_spec for argument_spec in prompt.arguments if argument_spec.name == argument.name), None
            )
            if argument_spec is None:
                raise MCPError(types.INVALID_PARAMS, f"The prompt {prompt.name} has no argument {argument.name[:64]}.")
            return _completed(argument_spec.values, argument.value)
        if params.ref.uri not in {template.uri_template for template in uris.TEMPLATES}:
            raise MCPError(types.INVALID_PARAMS, "There is no such resource template.")
        # Paths are not offered: each look would be a call in the sandbox, decided and on record, with every key pressed.
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
    blanks = [
        types.PromptArgument(name=b.name, title=b.title, description=b.description, required=b.required)
        for b in prompt.arguments
    ]
    return types.Prompt(name=prompt.name, title=prompt.title, description=prompt.description, arguments=blanks)


def _completed(known: Iterable[str], prefix: str) -> types.CompleteResult:
    matches = [value for value in known if value.lower().startswith(prefix.lower())]
    shown = types.Completion(values=matches[:MAX_VALUES], total=len(matches), has_more=len(matches) > MAX_VALUES)
    return types.CompleteResult(completion=shown)


def _unknown_prompt(name: str) -> MCPError:
    return MCPError(types.INVALID_PARAMS, f"There is no prompt {name[:64]}. List the prompts to see their names.")
