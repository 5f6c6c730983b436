"""Waits for a call on behalf of an HTTP request, as long as its client stays connected."""

from __future__ import annotations

import asyncio
from functools import partial

from starlette.requests import Request

from codesdk.api.event_stream import OpenStreams
from codesdk.domain.subjects import Subject
from codesdk.mcphost.tool_calls.progress import Attendance, Waiters
from codesdk.toolcalls.records.call_record import Denied, Finished, Outcome
from codesdk.toolcalls.results import ResultWaiter

MAX_WAIT_S = 600.0
"""Maximum seconds that one request waits: proxies close connections that are silent for longer."""


class _Wait:
    """One request's wait, which ends when the client leaves or the process stops."""

    def __init__(self) -> None:
        self._stop = asyncio.Event()

    def close(self) -> None:
        """End the wait, because the process stops: the client asks another one, and the call goes on."""
        self._stop.set()

    async def closed(self) -> None:
        """Wait for that."""
        await self._stop.wait()


async def wait_while_connected(
    request: Request,
    outcome: Outcome,
    subject: Subject,
    *,
    results: ResultWaiter,
    waiters: Waiters,
    streams: OpenStreams,
    wait_s: float,
    joined: bool = False,
) -> Outcome:
    """The call's outcome once it has ended, or as it stands after `wait_s` seconds or when the process stops.

    If the client disconnects, the call ends like one whose MCP client left: unless somebody else waits for it, or joins
    it within the grace. A request that `joined` an earlier one's call doesn't end it, because that one may have been told
    that the call goes on.

    Raises:
        TooManyStreams: the tenant has its maximum of streams and waits; the call goes on.
    """
    if isinstance(outcome, Denied | Finished):
        return outcome
    call = outcome.identity.tool_call_id
    here = _Wait()
    with streams.track(here, subject.tenant_id):
        attendance = Attendance(waiters, call, _abandon_nothing if joined else partial(waiters.abandon, call, subject))
        wait = asyncio.create_task(results.wait(outcome, subject, wait_s))
        left = asyncio.create_task(_disconnected(request))
        stopped = asyncio.create_task(here.closed())
        tasks = (wait, left, stopped)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return wait.result() if wait.done() else outcome
        finally:
            attendance.change(connected=wait.done() or stopped.done())
            attendance.end()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def _abandon_nothing(*, gone: bool) -> None:
    """Leave the call as it is."""


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
