"""Measures the latency of approvals from the log's timestamps, without the time that a person takes to answer.

`approval_overhead_ms`: from the deciding vote to the start of the run. `preview_ms`: from the call's request to the
approval request, with a preview in an empty workspace. Both over HTTP and through the worker of the running
installation, one call after another; medians.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

from codesdk.approvals import ApprovalState, Verdict
from codesdk.cli.demo.agent import connect_mcp
from codesdk.cli.stack.stack import Stack
from codesdk.domain.decisions import PermissionMode
from codesdk.domain.events import Event, EventType
from codesdk.sessions import NewSession

CALLS = 40
PREVIEWED_CALLS = 7
TIMEOUT_S = 30.0
AIM_MS = 15.0
PLAIN = ("approval_overhead_ms", "preview_ms")
PREVIEWING = """\
version: 1
rules:
  - {id: tried, effect: ask, tool: workspace.exec, approval: {preview: true}}
"""


def measure(stack: Stack, say: Callable[[str], None]) -> dict[str, float]:
    """Return the report's keys."""
    say(f"{CALLS} calls that are asked about and approved, {PREVIEWED_CALLS} with a preview")
    labels = {"opened-by": "bench"}
    asking = NewSession(permission_mode=PermissionMode.ASK, labels=labels)
    trying = NewSession(policy=PREVIEWING, labels=labels)
    decided = between(_events(stack, asking, CALLS), EventType.APPROVAL_DECIDED, EventType.CALL_STARTED)
    tried = between(_events(stack, trying, PREVIEWED_CALLS), EventType.CALL_REQUESTED, EventType.APPROVAL_REQUESTED)
    assert (len(decided), len(tried)) == (CALLS, PREVIEWED_CALLS), (decided, tried)
    return {
        "approval_overhead_ms": round(statistics.median(decided), 3),
        "preview_ms": round(statistics.median(tried), 3),
    }


def between(events: list[Event], first: EventType, last: EventType) -> list[float]:
    """Milliseconds from the one event of each call to the other."""
    began: dict[Any, datetime] = {}
    found = []
    for event in events:
        call = event.payload.get("tool_call_id")
        if event.type is first:
            began[call] = _moment(event)
        elif event.type is last and call in began:
            found.append((_moment(event) - began[call]).total_seconds() * 1000)
    return found


def _events(stack: Stack, wish: NewSession, calls: int) -> list[Event]:
    session = stack.daemon.open_session(wish)
    asyncio.run(_run(stack, session.mcp_url, session.token, session.session.id, calls))
    return list(stack.daemon.events(session.session.id))


async def _run(stack: Stack, url: str, token: str, session: str, calls: int) -> None:
    async with connect_mcp(url, token) as client:
        for number in range(calls):
            call = asyncio.create_task(client.call_tool("workspace_exec", {"argv": ["true", str(number)]}))
            await asyncio.to_thread(_approve, stack, session)
            result = await call
            assert not result.is_error, result


def _approve(stack: Stack, session: str) -> None:
    until = time.monotonic() + TIMEOUT_S
    while time.monotonic() < until:
        for shown in stack.daemon.approvals(ApprovalState.PENDING, session):
            stack.daemon.vote(shown, Verdict.APPROVE)
            return
        time.sleep(0.01)
    raise TimeoutError("nothing was asked")


def _moment(event: Event) -> datetime:
    return datetime.fromisoformat(str(event.time))
