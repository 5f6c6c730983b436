"""The MCP host: one endpoint, both protocol eras, every call through the pipeline."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

import mcp_types as types
from anyio import CapacityLimiter
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from starlette.types import ASGIApp

from codesdk.approvals import ApprovalService
from codesdk.artifacts import ArtifactService
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
from codesdk.mcphost.server.bearer_auth import AuthenticateRequest, BearerAuthMiddleware, subject_of
from codesdk.mcphost.server.client_request import ClientElicitor, LazyStateCodec, requested_wait_s
from codesdk.mcphost.server.event_store import RETRY_MS, ResumableSessionManager
from codesdk.mcphost.server.protected_resource import ProtectedResource
from codesdk.mcphost.server.throttle import Throttle
from codesdk.mcphost.session_resources.handlers import ResourceHandlers, add_artifact_links, reject_cursor
from codesdk.mcphost.session_resources.subscriptions import ResourceSubscriptions
from codesdk.mcphost.tool_calls import answers, result_collection
from codesdk.mcphost.tool_calls.caller import Caller, ReportProgress
from codesdk.mcphost.tool_calls.client_call_id import client_call_id
from codesdk.mcphost.tool_calls.handler import Answer, CallHandler
from codesdk.registry import Prompt, Registry, Tool, UnknownTool
from codesdk.toolcalls.pipeline import Pipeline
from codesdk.toolcalls.results import Results

_log = logging.getLogger(__name__)

THREADS = 128
"""Calls that may wait for a commit at once; the writer commits them in groups, so more threads mean larger groups."""
MAX_BODY = 4 * 1024 * 1024
"""Bytes of one request; a larger input belongs in an artifact."""
STATE_TTL_S = 7 * 86400.0
"""Seconds for which a sealed state is good: as long as an approval may stay open; the approval itself ends sooner."""
INSTRUCTIONS = (
    "These tools run in a sandbox of this session, under a policy. A call may be denied, or may have to wait for a "
    "person; the answer says so and says what to do."
)

_Context = ServerRequestContext[Any, Any]


class McpHost:
    """Serves MCP. `app` is the ASGI application; it answers only while `run` is entered, once per object."""

    def __init__(
        self,
        *,
        pipeline: Pipeline,
        results: Results,
        desk: ApprovalService,
        admit: AuthenticateRequest,
        resource: ProtectedResource,
        artifacts: ArtifactService,
        tail: Tail,
        head: Callable[[SessionId], int],
        clock: Clock,
        wait_s: float,
        allowed_hosts: Collection[str],
        allowed_origins: Collection[str],
        state_key: Callable[[], bytes],
        forms: bool = False,
        link: ApprovalLink | None = None,
        shown: ApprovalLink | None = None,
        read_only_hints: bool = True,
    ) -> None:
        """`admit`: finds a request's session. `resource`: what clients that log in are told. `head`: the last `seq` of a log.

        `allowed_hosts`, `allowed_origins`: header values that pass; `:*` at the end stands for any port.

        `state_key`: gives at least 32 secret bytes, that seal what a client carries between the rounds of a question.
        `forms`: the agents' own hosts are trusted with a person's answer. `link`: to the pages of approvals; `shown`: to
        such as decide nothing, which an agent may read.
        `read_only_hints`: whether tools that only read are marked; clients ask their user about any other.
        """
        self._read_only_hints = read_only_hints
        self.resource = resource
        self._pipeline = pipeline
        self._token_limiter = CapacityLimiter(THREADS)
        self._calls = CallHandler(
            pipeline=pipeline,
            results=results,
            desk=desk,
            clock=clock,
            wait_s=wait_s,
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
            instructions=INSTRUCTIONS,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
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
            codec=LazyStateCodec(state_key),
            ttl=STATE_TTL_S,
            bind_principal=lambda ctx: subject_of(ctx.request).session_id,
        )
        self.server.middleware.append(RequestStateBoundary(state_security, default_audience="codesdk"))
        self._manager = ResumableSessionManager(
            self.server,
            retry_interval=RETRY_MS,
            json_response=False,  # with plain JSON some clients give up after 60 s, and no progress can be sent
            max_request_body_size=MAX_BODY,
            security_settings=TransportSecuritySettings(
                enable_dns_rebinding_protection=True,
                allowed_hosts=list(allowed_hosts),
                allowed_origins=list(allowed_origins),
            ),
        )
        served = StreamableHTTPASGIApp(self._manager)
        gate = BearerAuthMiddleware(served, admit, resource, self._token_limiter, Throttle(clock), max_body=MAX_BODY)
        self.app: ASGIApp = gate
        self.open_requests = gate.open_requests

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Serve while entered."""
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

    def stop(self) -> None:
        """Answer every waiting client now; what runs goes on and stays on record. Call it on the event loop."""
        self._calls.stop()

    def _input_schema(self, name: str) -> dict[str, Any] | None:
        # Given so that the SDK does not list all tools before every call to find the one schema. It is asked before anybody
        # knows who calls, so it knows the shared tools alone; a call is checked against its schema all the same.
        tool = tool_list.find_tool(self._pipeline.registry.of(""), name)
        return tool.input_schema if tool else None

    def _list_tools_for(self, subject: Subject) -> list[types.Tool]:
        bundle = self._pipeline.bundles.of(subject.tenant_id, subject.policy_hash)
        found = tool_list.list_tools(self._pipeline.registry.of(subject.tenant_id), bundle, subject)
        shown = [*found, result_collection.COLLECT_RESULT] if found else []
        return shown if self._read_only_hints else [tool_list.without_read_only_hint(tool) for tool in shown]

    def _list_version(self, subject: Subject) -> tuple[str, Registry]:
        bundle = self._pipeline.bundles.of(subject.tenant_id, subject.policy_hash)
        return bundle.hash, self._pipeline.registry.of(subject.tenant_id)

    def _list_snapshot(self, subject: Subject) -> ListSnapshot:
        tools = tuple(tool.model_dump_json() for tool in self._list_tools_for(subject))
        return ListSnapshot(tools, tuple(prompt.model_dump_json() for prompt in self._prompt_handlers.listed(subject)))

    def _prompts(self, subject: Subject) -> dict[str, Prompt]:
        return self._pipeline.registry.of(subject.tenant_id).prompts

    def _find_tool(self, subject: Subject, name: str) -> Tool | None:
        return tool_list.find_tool(self._pipeline.registry.of(subject.tenant_id), name)

    async def _list_tools(self, ctx: _Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        reject_cursor(params)
        shown = self._list_tools_for(subject_of(ctx.request))
        # Private and at once stale: the list depends on the session, and a changed policy changes it.
        return types.ListToolsResult(tools=shown, ttl_ms=0, cache_scope="private")

    async def _call_tool(self, ctx: _Context, params: types.CallToolRequestParams) -> Answer:
        caller = _caller(ctx, params)
        tool = tool_list.find_tool(self._pipeline.registry.of(caller.subject.tenant_id), params.name)
        if tool is None and params.name != result_collection.COLLECT_RESULT.name:
            raise self._unknown_tool(params.name, caller.subject)
        try:
            if tool is None:
                answer = await self._collect(params.arguments or {}, caller)
            else:
                answer = await self._calls.run(tool, params.arguments or {}, caller)
            return add_artifact_links(answer, ctx.protocol_version)
        except UnknownTool as fault:
            raise MCPError(types.INVALID_PARAMS, str(fault)) from fault
        except InternalFault as fault:
            _log.exception("a call of %s met a defect", params.name)
            raise MCPError(types.INTERNAL_ERROR, "Something in CodeSDK is broken; its log says what.") from fault
        except Fault as fault:
            return answers.refused(fault)
        except Exception as error:
            _log.exception("a call of %s met a defect", params.name)
            raise MCPError(types.INTERNAL_ERROR, "Something in CodeSDK is broken; its log says what.") from error

    async def _collect(self, arguments: dict[str, Any], caller: Caller) -> Answer:
        call = result_collection.call_id_argument(arguments)
        return await self._calls.collect(call, caller) if call else answers.unknown_call(str(arguments.get("call_id")))

    def _unknown_tool(self, name: str, subject: Subject) -> MCPError:
        near = tool_list.closest_name(name, self._list_tools_for(subject))
        hint = f" Did you mean {near}?" if near else " List the tools to see their names."
        return MCPError(types.INVALID_PARAMS, f"There is no tool {name[:64]}.{hint}")


def _caller(ctx: _Context, params: types.CallToolRequestParams) -> Caller:
    return Caller(
        subject=subject_of(ctx.request),
        report=_report(ctx),
        asking=ClientElicitor(ctx, questions.parse_reply(params)),
        wait_s=requested_wait_s(ctx.request),
        call_id=client_call_id(params.meta),
    )


def _report(ctx: _Context) -> ReportProgress | None:
    if not ctx.meta or ctx.meta.get("progress_token") is None:
        return None

    async def report(seconds: float, message: str) -> None:
        await ctx.session.report_progress(seconds, None, message)

    return report
