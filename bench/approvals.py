"""What an approval costs once it is given: from the vote that decides to the start of the run, by the log's own times.

Over HTTP and through the worker of the running installation, one call after another; what a person takes to answer does not
count. Key: `approval_overhead_ms`, a plain number (median).
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

from codesdk.approvals import ApprovalState, Verdict
from codesdk.cli.demo.agent import connected
from codesdk.cli.stack.stack import Stack
from codesdk.domain.decisions import PermissionMode
from codesdk.domain.events import Event, EventType
from codesdk.sessions import NewSession

CALLS = 40
PATIENCE_S = 30.0
AIM_MS = 15.0
PLAIN = ("approval_overhead_ms",)


def measure(stack: Stack, say: Callable[[str], None]) -> dict[str, float]:
    """The report's key."""
    say(f"{CALLS} calls that are asked about and approved")
    asking = NewSession(permission_mode=PermissionMode.ASK, labels={"opened-by": "bench"})
    session = stack.daemon.open_session(asking)
    asyncio.run(_run(stack, session.mcp_url, session.token, session.session.id))
    times = overheads(list(stack.daemon.events(session.session.id)))
    assert len(times) == CALLS, times
    return {"approval_overhead_ms": round(statistics.median(times), 3)}


def overheads(events: list[Event]) -> list[float]:
    """Milliseconds from each `approval.decided` to its call's `tool.call.started`."""
    decided: dict[Any, datetime] = {}
    found = []
    for event in events:
        call = event.payload.get("tool_call_id")
        if event.type is EventType.APPROVAL_DECIDED:
            decided[call] = _moment(event)
        elif event.type is EventType.CALL_STARTED and call in decided:
            found.append((_moment(event) - decided[call]).total_seconds() * 1000)
    return found


async def _run(stack: Stack, url: str, token: str, session: str) -> None:
    async with connected(url, token) as client:
        for number in range(CALLS):
            call = asyncio.create_task(client.call_tool("workspace_exec", {"argv": ["true", str(number)]}))
            await asyncio.to_thread(_approve, stack, session)
            result = await call
            assert not result.is_error, result


def _approve(stack: Stack, session: str) -> None:
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        for shown in stack.daemon.approvals(ApprovalState.PENDING, session):
            stack.daemon.vote(shown, Verdict.APPROVE)
            return
        time.sleep(0.01)
    raise TimeoutError("nothing was asked")


def _moment(event: Event) -> datetime:
    return datetime.fromisoformat(str(event.time))
