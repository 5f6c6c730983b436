"""The demo's agent, on the official MCP client over HTTP, and the approver, on the HTTP API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult

from codesdk.approvals import Verdict
from codesdk.cli.api_client import ApiClient
from codesdk.cli.demo.event_collector import EventCollector
from codesdk.cli.demo.steps import DemoFailed, Step
from codesdk.cli.logs.history import Call
from codesdk.domain.events import Event, EventType
from codesdk.domain.tool_results import wire_name
from codesdk.errors import Fault

CALL_META_KEY = "codesdk/call"
"""Key in a result's `_meta` that holds the call's id."""
ENDS = ("completed", "failed", "denied")
STEP_S = 420.0
"""Seconds for one step: the longest call may run 300."""
APPROVAL_S = 30.0
EVENT_S = 10.0
WATCH_S = 0.5


class Agent:
    """Makes calls. Reads every result twice: from the MCP client and from the log."""

    def __init__(
        self,
        client: Client,
        daemon: ApiClient,
        event_collector: EventCollector,
        failure_reason: Callable[[], str | None],
    ) -> None:
        """`failure_reason`: returns why one of our processes has ended, if one has."""
        self._client = client
        self._daemon = daemon
        self._event_collector = event_collector
        self._failure_reason = failure_reason

    async def tools(self) -> list[str]:
        """List the session's tools through MCP."""
        return [tool.name for tool in (await self._client.list_tools()).tools]

    async def run_step(self, step: Step) -> tuple[Call, str]:
        """Make the step's call; return the call from the log, and the text that the agent received.

        Raises:
            DemoFailed: the call did not end as expected, or one of our processes ended.
        """
        known = len(self._event_collector.events)
        call = asyncio.create_task(self._client.call_tool(wire_name(step.tool), step.input))
        watchers = {asyncio.create_task(self._fail_when_process_exits())}
        if step.effect == "ask":
            watchers.add(asyncio.create_task(self._approve(known)))
        try:
            async with asyncio.timeout(STEP_S):
                result = await _first_result(call, watchers)
        except TimeoutError as error:
            raise DemoFailed(f"“{step.title}” did not end within {STEP_S:.0f} s.") from error
        finally:
            for task in (call, *watchers):
                task.cancel()
        text = text_of(result)
        recorded = await self._recorded_call(result, text)
        _check(step, recorded, text, is_error=bool(result.is_error))
        return recorded, text

    async def _approve(self, known: int) -> None:
        requested = await asyncio.to_thread(
            self._event_collector.wait_for,
            lambda e: e.seq > known and e.type is EventType.APPROVAL_REQUESTED,
            APPROVAL_S,
        )
        shown = await asyncio.to_thread(self._daemon.approval, str(requested.payload["approval_id"]))
        await asyncio.to_thread(self._daemon.vote, shown, Verdict.APPROVE, "approved by the demo's person")

    async def _fail_when_process_exits(self) -> None:
        while (why := self._failure_reason()) is None:  # noqa: ASYNC110 (another process sets no event of ours)
            await asyncio.sleep(WATCH_S)
        raise DemoFailed(why)

    async def _recorded_call(self, result: CallToolResult, text: str) -> Call:
        details: dict[str, Any] = (result.meta or {}).get(CALL_META_KEY, {})
        call_id = details.get("tool_call_id")
        if not isinstance(call_id, str) or details.get("status") not in ENDS:
            raise DemoFailed(f"A call did not end: {text[:400]}")
        ends = (EventType.CALL_COMPLETED, EventType.CALL_DENIED)

        def is_end(event: Event) -> bool:
            return event.type in ends and event.payload.get("tool_call_id") == call_id

        await asyncio.to_thread(self._event_collector.wait_for, is_end, EVENT_S)
        found = self._event_collector.history().call(call_id)
        if found is None:
            raise DemoFailed(f"The log does not know call {call_id}.")
        return found


async def _first_result(call: asyncio.Task[CallToolResult], watchers: set[asyncio.Task[None]]) -> CallToolResult:
    """Return the call's result, or raise the first error of a task that runs next to it."""
    waiting: set[asyncio.Task[Any]] = {call, *watchers}
    while not call.done():
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in done - {call}:
            task.result()
    return call.result()


@asynccontextmanager
async def connect_mcp(url: str, token: str, mode: Literal["auto", "legacy"] = "auto") -> AsyncIterator[Client]:
    """Connect the official client with the session's token. `legacy`: use the older protocol version."""
    headers = {"Authorization": f"Bearer {token}"}
    timeout = httpx2.Timeout(30.0, read=STEP_S)
    async with (
        httpx2.AsyncClient(headers=headers, timeout=timeout, trust_env=False) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode, cache=None) as client,
    ):
        yield client


def root_cause(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first fault in the client's nested exception groups; wraps any other exception in a fault."""
    first = group.exceptions[0]
    if isinstance(first, BaseExceptionGroup):
        return root_cause(first)
    if isinstance(first, Fault) or not isinstance(first, Exception):
        return first
    return DemoFailed(f"The MCP client failed: {type(first).__name__}: {first}.")


def text_of(result: CallToolResult) -> str:
    """Return the text that the model receives."""
    return "\n".join(block.text for block in result.content if block.type == "text")


def _check(step: Step, recorded: Call, text: str, *, is_error: bool) -> None:
    policy = next((evaluation.result for evaluation in recorded.voices if evaluation.source == "codesdk"), "nothing")
    if policy != step.effect:
        raise DemoFailed(f"“{step.title}”: policy said {policy}, not {step.effect}.", advice=text[:400])
    if recorded.state != step.end or is_error != (step.end != "completed"):
        raise DemoFailed(f"“{step.title}” ended as {recorded.state}, not {step.end}.", advice=text[:400])
    if step.contains not in text:
        raise DemoFailed(f"“{step.title}”: the result lacks {step.contains!r}.", advice=text[-400:])
