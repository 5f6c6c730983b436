"""Tool calls that a principal makes over HTTP in a session of its own: submit one, and wait for its end without a thread."""

from __future__ import annotations

import asyncio
import re
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

from anyio import to_thread
from fastapi import Request

from codesdk.api.event_stream import OpenStreams, disconnected
from codesdk.api.problems import InvalidRequest
from codesdk.artifacts import StoredArtifact
from codesdk.bootstrap import Services
from codesdk.domain.subjects import Subject
from codesdk.mcphost.tool_calls.caller import MAX_CALL_ID_CHARS
from codesdk.mcphost.tool_calls.handler import call_timeout_s
from codesdk.mcphost.tool_calls.progress import Attendance, Waiters
from codesdk.sessions.session import SessionUnknown
from codesdk.tenancy.principal import Principal
from codesdk.toolcalls.records.call_record import Denied, Finished, Outcome, Queued
from codesdk.toolcalls.results import ResultWaiter

IDEMPOTENCY_HEADER = "Idempotency-Key"
MAX_WAIT_S = 600.0
"""Maximum seconds that one request waits: proxies close connections that are silent for longer."""
_KEY = re.compile(rf"[\x21-\x7e]{{1,{MAX_CALL_ID_CHARS}}}")


def idempotency_key(request: Request) -> str | None:
    """The client's id for the call; None if it gives none.

    Raises:
        InvalidRequest: it isn't 1 to 200 visible ASCII characters.
    """
    given = request.headers.get(IDEMPOTENCY_HEADER)
    if given is not None and not _KEY.fullmatch(given):
        raise InvalidRequest(
            f"{IDEMPOTENCY_HEADER} is text of 1 to {MAX_CALL_ID_CHARS} visible ASCII characters.",
            advice="Send a random value, such as a UUID, and the same one again only with the same request.",
        )
    return given


def own_subject(services: Services, caller: Principal, session_id: str) -> Subject:
    """The caller as the subject of an open session that it opened itself. Blocks on the database.

    Raises:
        SessionUnknown: it has no such open session. In another's, it would act in that principal's name.
    """
    subject = services.directory.subject_in(caller, session_id)
    if subject is None:
        raise SessionUnknown("There is no such session of yours, or it is closed.")
    return subject


async def run_call(
    services: Services,
    slot: AbstractAsyncContextManager[None],
    subject: Subject,
    tool_name: str,
    arguments: dict[str, Any],
    *,
    key: str | None = None,
    transfer: bool = False,
    upload: StoredArtifact | None = None,
) -> Outcome:
    """Submit a call and wait until it has ended, needs approval, or has taken longer than its tool may.

    Takes the slot only to submit it: a thread works for that long. `key`: the same key again returns the same call's
    outcome. `transfer`, `upload`: as for `Pipeline.submit`.

    Raises:
        Fault: as `Pipeline.submit`.
    """
    submit = partial(services.pipeline.submit, tool_name, arguments, subject)
    async with slot:
        outcome = await to_thread.run_sync(lambda: submit(runtime_tool_call_id=key, transfer=transfer, upload=upload))
    if not isinstance(outcome, Queued):
        return outcome
    tool = services.registry.of(subject.tenant_id).find(tool_name)
    return await services.results.wait(outcome, subject, call_timeout_s(tool) if tool else 0.0)


class _Wait:
    """One request's wait, which ends when the client leaves or the process stops."""

    def __init__(self) -> None:
        self.stopped = asyncio.Event()

    def close(self) -> None:
        """End the wait, because the process stops: the client asks another one, and the call goes on."""
        self.stopped.set()


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
        left = asyncio.create_task(disconnected(request.receive))
        stopped = asyncio.create_task(here.stopped.wait())
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
