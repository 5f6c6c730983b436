"""Waits for a call on behalf of an HTTP request, as long as its client stays connected."""

from __future__ import annotations

import asyncio

from starlette.requests import Request

from codesdk.domain.subjects import Subject
from codesdk.mcphost.tool_calls.progress import Waiters
from codesdk.toolcalls.records.call_record import Denied, Finished, Outcome
from codesdk.toolcalls.results import ResultWaiter

MAX_WAIT_S = 600.0
"""Maximum seconds that one request waits: proxies close connections that are silent for longer."""


async def wait_while_connected(
    request: Request, outcome: Outcome, subject: Subject, *, results: ResultWaiter, waiters: Waiters, wait_s: float
) -> Outcome:
    """The call's outcome once it has ended, or as it stands after `wait_s` seconds.

    If the client disconnects, the call is withdrawn like one whose MCP client cancels it: unless somebody else waits for
    it, or joins it within the grace period.
    """
    if isinstance(outcome, Denied | Finished):
        return outcome
    call = outcome.identity.tool_call_id
    waiters.join(call)
    wait = asyncio.create_task(results.wait(outcome, subject, wait_s))
    leave = asyncio.create_task(_disconnected(request))
    try:
        await asyncio.wait((wait, leave), return_when=asyncio.FIRST_COMPLETED)
        if not wait.done():
            waiters.abandon(call, subject)
            return outcome  # nobody reads it
        return wait.result()
    except asyncio.CancelledError:
        waiters.abandon(call, subject)
        raise
    finally:
        waiters.leave(call)
        for task in (wait, leave):
            task.cancel()
        await asyncio.gather(wait, leave, return_exceptions=True)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
