"""Waits for a call on behalf of an HTTP request, as long as its client stays connected."""

from __future__ import annotations

import asyncio
from functools import partial

from starlette.requests import Request

from codesdk.domain.subjects import Subject
from codesdk.mcphost.tool_calls.progress import Attendance, Waiters
from codesdk.toolcalls.records.call_record import Denied, Finished, Outcome
from codesdk.toolcalls.results import ResultWaiter

MAX_WAIT_S = 600.0
"""Maximum seconds that one request waits: proxies close connections that are silent for longer."""


async def wait_while_connected(
    request: Request, outcome: Outcome, subject: Subject, *, results: ResultWaiter, waiters: Waiters, wait_s: float
) -> Outcome:
    """The call's outcome once it has ended, or as it stands after `wait_s` seconds.

    If the client disconnects, the call ends like one whose MCP client left: unless somebody else waits for it, or joins
    it within the grace.
    """
    if isinstance(outcome, Denied | Finished):
        return outcome
    call = outcome.identity.tool_call_id
    attendance = Attendance(waiters, call, partial(waiters.abandon, call, subject))
    wait = asyncio.create_task(results.wait(outcome, subject, wait_s))
    leave = asyncio.create_task(_disconnected(request))
    try:
        await asyncio.wait((wait, leave), return_when=asyncio.FIRST_COMPLETED)
        return wait.result() if wait.done() else outcome  # if the client has left, nobody reads it
    finally:
        attendance.change(connected=wait.done())
        attendance.end()
        for task in (wait, leave):
            task.cancel()
        await asyncio.gather(wait, leave, return_exceptions=True)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
