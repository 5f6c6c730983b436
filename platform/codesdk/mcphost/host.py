"""The MCP host: one HTTP endpoint for both protocol eras; every tool call goes through the pipeline."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import cache
from importlib.metadata import version
from typing import Any

import mcp_types as types
from anyio import CapacityLimiter, to_thread
from mcp.server import Server
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.request_state import AESGCMRequestStateCodec, RequestStateBoundary, RequestStateSecurity
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.types import ASGIApp

from codesdk.approvals import ApprovalService
from codesdk.artifacts import ArtifactService, ArtifactUnknown
from codesdk.domain.clock import Clock
from codesdk.domain.ids import SessionId
from codesdk.domain.subjects import Subject
from codesdk.errors import Fault, InternalFault
from codesdk.eventlog.tail import Tail
from codesdk.mcphost.elicitation import questions
from codesdk.mcphost.elicitation.questions import ApprovalLink
from codesdk.mcphost.listings import tool_list
from codesdk.mcphost.listings.list_changed import ListChangeNotifier, ListSnapshot
from codesdk.mcphost.listings.prompt_handlers import PromptHandlers
from codesdk.mcphost.message_check import name_invalid_field
from codesdk.mcphost.server.bearer_auth import AuthenticateRequest, BearerAuthMiddleware, connection_of, subject_of
from codesdk.mcphost.server.event_store import RETRY_MS, ResumableSessionManager
from codesdk.mcphost.server.protected_resource import ProtectedResource
from codesdk.mcphost.server.throttle import Throttle
from codesdk.mcphost.session_resources.handlers import ResourceHandlers, reject_cursor
from codesdk.mcphost.session_resources.subscriptions import ResourceSubscriptions
from codesdk.mcphost.tool_calls import answers
from codesdk.mcphost.tool_calls.answers import COLLECT_TOOL, MAX_IMAGES, Answer, ShownArtifact
from codesdk.mcphost.tool_calls.caller import (
    Caller,
    ClientElicitor,
    ReportProgress,
    client_call_id,
    has_text_results,
    requested_wait_s,
)
from codesdk.mcphost.tool_calls.handler import CallHandler
from codesdk.mcphost.tool_calls.progress import Waiters
from codesdk.policy import BundleProvider
from codesdk.registry import Prompt, Registry, RegistryProvider, SourceCall, Tool, UnknownTool
from codesdk.toolcalls.pipeline import Pipeline
from codesdk.toolcalls.results import ResultWaiter

_log = logging.getLogger(__name__)

THREADS = 128
"""Calls that may wait for a commit at the same time; the writer commits them in groups, so more threads mean larger groups."""
MAX_BODY = 4 * 1024 * 1024
"""Bytes of one request body; larger inputs belong in an artifact."""
STATE_TTL_S = 7 * 86400.0
"""Seconds that a sealed request state is valid: the longest that an approval may stay open."""
_GREETINGS = frozenset({"initialize", "server/discover"})
"""Methods whose result has the server's instructions: of the older handshake, and of the stateless protocol."""

_Context = ServerRequestContext[Any, Any]


class McpHost:
    """Serves MCP. `app` is the ASGI application; it answers only inside `run`, which is entered once per object."""

    def __init__(
        self,
        *,
        pipeline: Pipeline,
        registry: RegistryProvider,
        bundles: BundleProvider,
        results: ResultWaiter,
        approval_service: ApprovalService,
        admit: AuthenticateRequest,
        resource: ProtectedResource,
        artifacts: ArtifactService,
        instructions: Callable[[Subject], str],
        tail: Tail,
        head: Callable[[SessionId], int],
        clock: Clock,
        wait_s: float,
        gone_client_grace_s: float,
        state_key: Callable[[], bytes],
        forms: bool = False,
        link: ApprovalLink | None = None,
        shown: ApprovalLink | None = None,
        read_only_hints: bool = True,
    ) -> None:
        """Serve behind a check of `Host` and `Origin`: see `api.origins`.

        `admit`: authenticates a request. `resource`: OAuth metadata for clients that log in. `instructions`: what a
        session's model is told; reads the database. `head`: a log's last `seq`. `gone_client_grace_s`: seconds that a running
        call continues after its client left.
        `state_key`: returns at least 32 secret bytes, which seal the state that a client carries between two rounds of a
        question. `forms`: agents' hosts are trusted to pass on their user's answer. `link`: to an approval's page;
        `shown`: to its read-only page, for agents. `read_only_hints`: mark tools that only read; clients ask their user
        about all others.
        """
        self._read_only_hints = read_only_hints
        self.resource = resource
        self._registry = registry
        self._results = results
        self._artifacts = artifacts
        self._bundles = bundles
        self._instructions = instructions
        self._token_limiter = CapacityLimiter(THREADS)
        self._calls = CallHandler(
            pipeline=pipeline,
            results=results,
            approval_service=approval_service,
            clock=clock,
            wait_s=wait_s,
            gone_client_grace_s=gone_client_grace_s,
            limiter=CapacityLimiter(THREADS),
            forms=forms,
            link=link,
            shown=shown,
        )
        reading = ResourceHandlers(artifacts, self._call_tool, self._token_limiter)
        self.server = Server(
            "codesdk",
            version=version("codesdk"),
            title="CodeSDK",
            on_list_tools=self._list_tools,
            on_call_tool=self._answer_client,
            on_list_resources=reading.list_resources,
            on_list_resource_templates=reading.list_templates,
            on_read_resource=reading.read,
            get_tool_input_schema=self._input_schema,
        )
        self._prompt_handlers = PromptHandlers(self._prompts, artifacts, self._token_limiter)
        self._prompt_handlers.serve(self.server)
        self.watching = ResourceSubscriptions(tail, head, self._find_tool)
        self.watching.serve(self.server)
        self.list_changes = ListChangeNotifier(
            self._list_version, self._list_snapshot, self.watching, self._token_limiter
        )
        self.list_changes.serve(self.server)
        state_security = RequestStateSecurity(
            codec=_LazyStateCodec(state_key),
            ttl=STATE_TTL_S,
            bind_principal=lambda ctx: subject_of(ctx.request).session_id,
        )
        self.server.middleware.append(RequestStateBoundary(state_security, default_audience="codesdk"))
        self.server.middleware.append(self._add_instructions)
        self.server.middleware.append(name_invalid_field)
        self._manager = ResumableSessionManager(
            self.server,
            retry_interval=RETRY_MS,
            json_response=False,  # with plain JSON some clients give up after 60 s, and no progress can be sent
            max_request_body_size=MAX_BODY,
            # Off: HostHeaderCheck has checked Host and Origin before a request gets here.
            security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        )
        served = StreamableHTTPASGIApp(self._manager)
        gate = BearerAuthMiddleware(served, admit, resource, self._token_limiter, Throttle(clock), max_body=MAX_BODY)
        self.app: ASGIApp = gate
        self.open_requests = gate.open_requests

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Serve until the block ends."""
        self._results.listen()
        async with self._manager.run():
            watching = [asyncio.create_task(each.watch()) for each in (self.list_changes, self.open_requests)]
            try:
                yield
            finally:
                for task in watching:
                    task.cancel()
                await asyncio.wait(watching)
                self.stop()
                await self._calls.settle()

    @property
    def waiters(self) -> Waiters:
        """Who waits for which call, over MCP or otherwise: a call that nobody waits for any more is withdrawn."""
        return self._calls.waiters

    def stop(self) -> None:
        """Answer every waiting client now; running calls continue. Call it on the event loop."""
        self._calls.stop()

    async def _add_instructions(self, ctx: _Context, call_next: CallNext) -> HandlerResult:
        result = await call_next(ctx)
        if ctx.method not in _GREETINGS or not isinstance(result, dict):
            return result
        subject = subject_of(ctx.request)
        text = await to_thread.run_sync(self._instructions, subject, limiter=self._token_limiter)
        return {**result, "instructions": text}

    def _input_schema(self, name: str) -> dict[str, Any] | None:
        # Without it the SDK lists all tools before every call to find one schema. It doesn't know the caller, so it finds
        # shared tools only; the pipeline validates every call's input anyway.
        tool = self._registry.of("").find(name)
        return tool.input_schema if tool else None

    def _list_tools_for(self, subject: Subject) -> list[types.Tool]:
        bundle = self._bundles.of(subject.tenant_id, subject.policy_hash)
        found = tool_list.list_tools(self._registry.of(subject.tenant_id), bundle, subject)
        shown = [*found, tool_list.COLLECT_RESULT] if found else []
        return shown if self._read_only_hints else [tool_list.without_read_only_hint(tool) for tool in shown]

    def _list_version(self, subject: Subject) -> tuple[str, Registry]:
        bundle = self._bundles.of(subject.tenant_id, subject.policy_hash)
        return bundle.hash, self._registry.of(subject.tenant_id)

    def _list_snapshot(self, subject: Subject) -> ListSnapshot:
        tools = tuple(tool.model_dump_json() for tool in self._list_tools_for(subject))
        return ListSnapshot(tools, tuple(prompt.model_dump_json() for prompt in self._prompt_handlers.listed(subject)))

    def _prompts(self, subject: Subject) -> dict[str, Prompt]:
        return self._registry.of(subject.tenant_id).prompts

    def _find_tool(self, subject: Subject, name: str) -> Tool | None:
        return self._registry.of(subject.tenant_id).find(name)

    async def _list_tools(self, ctx: _Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        reject_cursor(params)
        subject = subject_of(ctx.request)
        shown = self._list_tools_for(subject)
        if has_text_results(ctx):
            shown = [
                tool if self._is_from_server(subject, tool.name) else tool_list.without_output_schema(tool)
                for tool in shown
            ]
        # Private and immediately stale: the list depends on the session, and changes with policy.
        return types.ListToolsResult(tools=shown, ttl_ms=0, cache_scope="private")

    async def _answer_client(self, ctx: _Context, params: types.CallToolRequestParams) -> Answer:
        """A call as a client makes it: an agent's model gets the text alone, which says all that it needs."""
        answer = await self._call_tool(ctx, params)
        if not has_text_results(ctx):
            return answer
        is_from_server = self._is_from_server(subject_of(ctx.request), params.name)
        return answers.for_model(answer, keeps_structure=is_from_server)

    def _is_from_server(self, subject: Subject, name: str) -> bool:
        """Whether a third-party server runs the tool: then only that server knows whether its text says everything."""
        tool = self._find_tool(subject, name)
        # An earlier call's result may be of such a tool.
        return name == COLLECT_TOOL if tool is None else isinstance(tool.runs, SourceCall)

    async def _call_tool(self, ctx: _Context, params: types.CallToolRequestParams) -> Answer:
        caller = _caller(ctx, params)
        # A tool that isn't listed is found too: its call is denied and recorded, with the reason.
        tool = self._find_tool(caller.subject, params.name)
        if tool is None and params.name != COLLECT_TOOL:
            raise self._unknown_tool(params.name, caller.subject)
        try:
            if tool is None:
                answer = await self._collect(params.arguments or {}, caller)
            else:
                answer = await self._calls.run(tool, params.arguments or {}, caller)
            answer = await self._add_artifacts(answer, caller.subject, ctx.protocol_version)
            return answers.with_wire_names(answer, self._tool_names(caller.subject))
        except UnknownTool as fault:
            raise MCPError(types.INVALID_PARAMS, str(fault)) from fault
        except InternalFault as fault:
            raise _internal_error(params.name) from fault
        except Fault as fault:
            return answers.with_wire_names(answers.refused(fault), self._tool_names(caller.subject))
        except Exception as error:
            raise _internal_error(params.name) from error

    def _tool_names(self, subject: Subject) -> dict[str, str]:
        return {tool.name: tool.wire_name for tool in self._registry.of(subject.tenant_id).tools()}

    async def _add_artifacts(self, answer: Answer, subject: Subject, protocol: str) -> Answer:
        """The answer with how to read its artifacts, if it names any."""
        named = answers.named_artifacts(answer)
        if not named:
            return answer
        try:
            found = await to_thread.run_sync(self._find_artifacts, subject, named, limiter=self._token_limiter)
        except Fault as fault:  # the database is away; the answer itself is known, and has their ids
            _log.info("the artifacts of an answer cannot be described: %s", fault)
            return answer
        return answers.add_artifacts(answer, found, protocol)

    def _find_artifacts(self, subject: Subject, named: tuple[str, ...]) -> list[ShownArtifact]:
        found: list[ShownArtifact] = []
        for name in named:
            with suppress(ArtifactUnknown):  # removed since
                artifact = self._artifacts.find(subject.tenant_id, name)
                is_one_more = sum(each.image is not None for each in found) < MAX_IMAGES
                content = self._artifacts.read(artifact) if is_one_more and answers.may_show(artifact) else b""
                is_shown = answers.is_image(content, artifact.content_type)
                found.append(ShownArtifact(artifact, content if is_shown else None))
        return found

    async def _collect(self, arguments: dict[str, Any], caller: Caller) -> Answer:
        call = tool_list.call_id_argument(arguments)
        return await self._calls.collect(call, caller) if call else answers.unknown_call(str(arguments.get("call_id")))

    def _unknown_tool(self, name: str, subject: Subject) -> MCPError:
        near = tool_list.closest_name(name, self._list_tools_for(subject))
        hint = f" Did you mean {near}?" if near else " List the tools to see their names."
        return MCPError(types.INVALID_PARAMS, f"There is no tool {name[:64]}.{hint}")


class _LazyStateCodec:
    """Seals request state with a key that is read on first use; most processes never need it."""

    def __init__(self, key: Callable[[], bytes]) -> None:
        self._codec = cache(lambda: AESGCMRequestStateCodec([key()]))

    def seal(self, payload: bytes) -> str:
        return self._codec().seal(payload)

    def unseal(self, token: str) -> bytes:
        return self._codec().unseal(token)


def _internal_error(tool: str) -> MCPError:
    _log.exception("a call of %s failed because of a defect", tool)
    return MCPError(types.INTERNAL_ERROR, "Something in CodeSDK is broken; its log says what.")


def _caller(ctx: _Context, params: types.CallToolRequestParams) -> Caller:
    return Caller(
        subject=subject_of(ctx.request),
        report=_report(ctx),
        asking=ClientElicitor(ctx, questions.parse_reply(params) if params.request_state is not None else None),
        wait_s=requested_wait_s(ctx.request),
        call_id=client_call_id(params.meta),
        connection=None if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS else connection_of(ctx.request),
    )


def _report(ctx: _Context) -> ReportProgress | None:
    if not ctx.meta or ctx.meta.get("progress_token") is None:
        return None

    async def report(seconds: float, message: str) -> None:
        await ctx.session.report_progress(seconds, None, message)

    return report
