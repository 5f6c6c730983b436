"""The handlers of `prompts/*` and `completion/complete`: what the registry's prompts are in the words of the protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import mcp_types as types
from anyio import CapacityLimiter, to_thread
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError

from codesdk.artifacts import Artifacts
from codesdk.domain.subjects import Subject
from codesdk.errors import Fault
from codesdk.mcphost import resources
from codesdk.mcphost.access import subject_of
from codesdk.mcphost.reading import one_page
from codesdk.registry import Prompt, PromptArgumentWrong

MOST = 100
"""Values in one answer, as MCP bounds it."""

_Context = ServerRequestContext[Any, Any]
PromptsOf = Callable[[Subject], dict[str, Prompt]]
"""The prompts of a session's tenant now."""


class Prompting:
    """Serves the prompts of one session's tenant at a time."""

    def __init__(self, prompts: PromptsOf, artifacts: Artifacts, limiter: CapacityLimiter) -> None:
        self._prompts = prompts
        self._artifacts = artifacts
        self._limiter = limiter

    def serve(self, server: Server[Any]) -> None:
        """Add the handlers."""
        server.add_request_handler("prompts/list", types.PaginatedRequestParams, self.list_prompts)
        server.add_request_handler("prompts/get", types.GetPromptRequestParams, self.get)
        server.add_request_handler("completion/complete", types.CompleteRequestParams, self.complete)

    def told(self, subject: Subject) -> tuple[types.Prompt, ...]:
        """What a client of that session is shown."""
        return tuple(_as_mcp(prompt) for prompt in self._prompts(subject).values())

    async def list_prompts(self, ctx: _Context, params: types.PaginatedRequestParams | None) -> types.ListPromptsResult:
        """All of them, on one page."""
        one_page(params)
        shown = list(self.told(subject_of(ctx.request)))
        return types.ListPromptsResult(prompts=shown, ttl_ms=0, cache_scope="private")

    async def get(self, ctx: _Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        """One of them, filled."""
        prompt = self._prompts(subject_of(ctx.request)).get(params.name)
        if prompt is None:
            raise _no_prompt(params.name)
        try:
            filled = prompt.fill(params.arguments or {})
        except PromptArgumentWrong as fault:
            raise MCPError(types.INVALID_PARAMS, str(fault)) from fault
        messages = [types.PromptMessage(role=role.value, content=types.TextContent(text=text)) for role, text in filled]
        return types.GetPromptResult(description=prompt.description, messages=messages)

    async def complete(self, ctx: _Context, params: types.CompleteRequestParams) -> types.CompleteResult:
        """What begins as the given value does: a prompt's listed values, or the ids of the session's artifacts."""
        subject, argument = subject_of(ctx.request), params.argument
        if isinstance(params.ref, types.PromptReference):
            prompt = self._prompts(subject).get(params.ref.name)
            if prompt is None:
                raise _no_prompt(params.ref.name)
            blank = next((blank for blank in prompt.arguments if blank.name == argument.name), None)
            if blank is None:
                raise MCPError(types.INVALID_PARAMS, f"The prompt {prompt.name} has no argument {argument.name[:64]}.")
            return _completed(blank.values, argument.value)
        if params.ref.uri not in {template.uri_template for template in resources.TEMPLATES}:
            raise MCPError(types.INVALID_PARAMS, "There is no such resource template.")
        # Paths are not offered: each look would be a call in the sandbox, decided and on record, with every key pressed.
        known = await self._ids(subject) if (params.ref.uri, argument.name) == (resources.ARTIFACT, "id") else ()
        return _completed(known, argument.value)

    async def _ids(self, subject: Subject) -> list[str]:
        try:
            listing = self._artifacts.listing
            found = await to_thread.run_sync(
                listing, subject.tenant_id, subject.session_id, None, resources.PAGE, limiter=self._limiter
            )
        except Fault as fault:
            raise MCPError(types.INTERNAL_ERROR, str(fault)) from fault
        return [each.id for each in found]


def _as_mcp(prompt: Prompt) -> types.Prompt:
    blanks = [
        types.PromptArgument(name=b.name, title=b.title, description=b.description, required=b.required)
        for b in prompt.arguments
    ]
    return types.Prompt(name=prompt.name, title=prompt.title, description=prompt.description, arguments=blanks)


def _completed(known: Iterable[str], begun: str) -> types.CompleteResult:
    fitting = [value for value in known if value.lower().startswith(begun.lower())]
    shown = types.Completion(values=fitting[:MOST], total=len(fitting), has_more=len(fitting) > MOST)
    return types.CompleteResult(completion=shown)


def _no_prompt(name: str) -> MCPError:
    return MCPError(types.INVALID_PARAMS, f"There is no prompt {name[:64]}. List the prompts to see their names.")
