"""One tool call of an MCP client: handed to the pipeline, followed to its end, answered in every case."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import mcp_types as types
from anyio import CancelScope, CapacityLimiter, get_cancelled_exc_class, to_thread

from codesdk.approvals import Desk
from codesdk.domain.clock import Clock
from codesdk.domain.ids import ToolCallId
from codesdk.domain.subjects import Subject
from codesdk.errors import Fault
from codesdk.mcphost import answers
from codesdk.mcphost.journey import Journey, Phase
from codesdk.mcphost.owed import Owed, settles
from codesdk.registry import Tool
from codesdk.toolcalls.pipeline import Pipeline
from codesdk.toolcalls.results import Results
from codesdk.toolcalls.stored import Denied, Finished, Outcome, Queued, Waiting

_log = logging.getLogger(__name__)

Report = Callable[[float, str], Awaitable[None]]
"""Sends one progress notification: seconds so far, and a line to show."""

MARGIN_S = 30.0
"""Seconds past a tool's own limit: for its turn, for starting a sandbox, and for recording the end."""
CANCEL_S = 10.0
"""Seconds that a cancelled run may take to end: stopping a tree takes the runner well under one."""
BEAT_S = 5.0
"""Seconds between progress notifications where nothing happens; the shortest idle limit measured is 60 s."""
GAP_S = 0.25
"""Least seconds between two notifications, however fast the output comes."""


class Calls:
    """Runs calls for MCP clients; one object per process, used on its event loop."""

    def __init__(
        self, *, pipeline: Pipeline, results: Results, desk: Desk, clock: Clock, wait_s: float, limiter: CapacityLimiter
    ) -> None:
        """`wait_s`: seconds to wait for a person; `limiter`: bounds the threads that wait for the database."""
        self._pipeline = pipeline
        self._results = results
        self._desk = desk
        self._clock = clock
        self._wait_s = wait_s
        self._limiter = limiter
        self._followers: Counter[ToolCallId] = Counter()
        self._waits: set[CancelScope] = set()
        self._owed = Owed()
        self._stopping = False

    def stop(self) -> None:
        """The process stops: every caller is told at once. Nobody has cancelled their calls, so these go on."""
        self._stopping = True
        for wait in self._waits:
            wait.cancel()

    async def run(
        self, tool: Tool, arguments: dict[str, Any], subject: Subject, report: Report | None
    ) -> types.CallToolResult:
        """The call's answer.

        Raises:
            Fault: the call could not be taken, or its end not be read.
        """
        # A cancel that comes while the thread works is delivered after it, so no submitted call is ever forgotten.
        outcome, place = await to_thread.run_sync(self._submit, tool.name, arguments, subject, limiter=self._limiter)
        if isinstance(outcome, Denied | Finished):
            return await self._answer(outcome, tool, subject)
        journey = Journey(outcome, place, self._clock)
        call = outcome.identity.tool_call_id
        self._followers[call] += 1
        reporter = asyncio.create_task(_tell(journey, report)) if report else None
        wait = CancelScope()
        self._waits.add(wait)
        if self._stopping:
            wait.cancel()
        try:
            with wait:
                outcome = await self._follow(outcome, tool, subject, journey)
            if wait.cancelled_caught:
                return answers.interrupted(call, asked=journey.phase is Phase.DECISION)
            return await self._answer(outcome, tool, subject)
        except get_cancelled_exc_class():
            # The same question may be asked twice at once: it is withdrawn only when nobody waits for it any more.
            if self._followers[call] == 1 and not self._stopping:
                with CancelScope(shield=True):
                    await self._cancel(call, subject, "the client cancelled it.")
            raise
        finally:
            self._waits.discard(wait)
            self._followers[call] -= 1
            if not self._followers[call]:
                del self._followers[call]
            if reporter is not None:
                await _stop(reporter)

    def _submit(self, name: str, arguments: dict[str, Any], subject: Subject) -> tuple[Outcome, int]:
        place = self._results.place(subject)
        repeated = self._owed.take(subject, name, arguments)
        outcome = self._pipeline.find(subject.tenant_id, subject.session_id, repeated) if repeated is not None else None
        # Approved while nobody waited, a call has run: asked again, it would be approved and run a second time.
        if outcome is None or not settles(outcome):
            outcome = self._pipeline.submit(name, arguments, subject)
        return outcome, place

    async def _follow(self, outcome: Outcome, tool: Tool, subject: Subject, journey: Journey) -> Outcome:
        while not isinstance(outcome, Denied | Finished):
            left = journey.since + self._bound(journey.phase, tool) - self._clock.monotonic()
            if left <= 0:
                return outcome if isinstance(outcome, Waiting) else await self._give_up(outcome, tool, subject, journey)
            outcome = await self._results.wait(outcome, subject, journey.place, left, journey.see)
            if isinstance(outcome, Queued) and journey.phase is Phase.DECISION:
                journey.enter(Phase.WORKER)
        return outcome

    def _bound(self, phase: Phase, tool: Tool) -> float:
        return self._wait_s if phase is Phase.DECISION else tool.timeout_s + MARGIN_S

    async def _give_up(self, outcome: Outcome, tool: Tool, subject: Subject, journey: Journey) -> Outcome:
        # Every call gets an answer that stays true: cancelled first, so that it cannot run after we have spoken.
        _log.warning("call %s did not end in time (%s)", outcome.identity.tool_call_id, journey.phase.value)
        reason = f"it was {journey.phase.value} for {self._bound(journey.phase, tool):.0f} s; is a worker running?"
        await self._cancel(outcome.identity.tool_call_id, subject, reason)
        return await self._results.wait(outcome, subject, journey.place, CANCEL_S)

    async def _cancel(self, call: ToolCallId, subject: Subject, reason: str) -> None:
        place = (subject.tenant_id, subject.session_id)
        try:
            await to_thread.run_sync(self._pipeline.cancel, *place, call, reason, limiter=self._limiter)
        except Fault:
            _log.warning("call %s could not be cancelled; its own limits end it", call, exc_info=True)

    async def _answer(self, outcome: Outcome, tool: Tool, subject: Subject) -> types.CallToolResult:
        match outcome:
            case Finished():
                return answers.finished(outcome)
            case Denied():
                return answers.denied(outcome)
            case Waiting():
                approval = await to_thread.run_sync(
                    self._desk.find, subject.tenant_id, outcome.approval_id, limiter=self._limiter
                )
                self._owed.keep(subject, tool.name, outcome.identity)
                return answers.waiting(outcome, tuple(approval.shown.get("rules", ())))
            case Queued():
                return answers.unfinished(outcome, tool.timeout_s + MARGIN_S)


async def _tell(journey: Journey, report: Report) -> None:
    """Report on events and on every beat, until cancelled. The numbers grow, as MCP asks."""
    said = -1.0
    while True:
        await asyncio.sleep(GAP_S)  # first of all: a call that ends sooner needs no progress, and its answer no stream
        journey.changed.clear()
        said = max(journey.elapsed(), said + 0.001)
        await report(round(said, 3), journey.message())
        try:
            async with asyncio.timeout(BEAT_S):
                await journey.changed.wait()
        except TimeoutError:
            continue


async def _stop(reporter: asyncio.Task[None]) -> None:
    reporter.cancel()
    with CancelScope(shield=True):  # short: the task only unwinds
        await asyncio.wait([reporter])
    if not reporter.cancelled() and (error := reporter.exception()):
        _log.warning("progress could not be reported: %r", error)
