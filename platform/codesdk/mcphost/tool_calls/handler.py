"""One tool call of an MCP client, from its taking to an answer: followed to its end, answered in every case."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from math import inf
from typing import Any, TypeVar

import mcp_types as types
from anyio import CancelScope, CapacityLimiter, get_cancelled_exc_class, to_thread

from codesdk.approvals import ApprovalService
from codesdk.domain.clock import Clock
from codesdk.domain.ids import ToolCallId
from codesdk.domain.subjects import Subject
from codesdk.errors import Fault
from codesdk.mcphost.elicitation import questions
from codesdk.mcphost.elicitation.session_user import UserElicitation
from codesdk.mcphost.tool_calls import answers
from codesdk.mcphost.tool_calls.caller import Caller, ReportProgress
from codesdk.mcphost.tool_calls.pending_results import PendingResults
from codesdk.mcphost.tool_calls.progress import CallPhase, CallProgress
from codesdk.mcphost.tool_calls.submission import CallSubmitter
from codesdk.mcphost.tool_calls.waiters import Waiters
from codesdk.registry import Tool
from codesdk.storage.faults import StorageUnavailable
from codesdk.toolcalls.pipeline import Pipeline
from codesdk.toolcalls.records.call_record import Denied, Finished, Outcome, Queued, Waiting
from codesdk.toolcalls.results import Results
from codesdk.toolcalls.submission.uncertain_commit import CallUncertain

_log = logging.getLogger(__name__)

_T = TypeVar("_T")
Answer = types.CallToolResult | types.InputRequiredResult

CALL_MARGIN_S = 30.0
"""Seconds past a tool's own limit: for its turn, for starting a sandbox, and for recording the end."""
CANCEL_S = 10.0
"""Seconds that a cancelled run may take to end: stopping a tree takes the runner well under one."""
PROGRESS_INTERVAL_S = 5.0
"""Seconds between progress notifications where nothing happens; the shortest idle limit measured is 60 s."""
MIN_PROGRESS_GAP_S = 0.25
"""Least seconds between two notifications, however fast the output comes."""


class CallHandler:
    """Runs calls for MCP clients; one object per process, used on its event loop."""

    def __init__(
        self,
        *,
        pipeline: Pipeline,
        results: Results,
        desk: ApprovalService,
        clock: Clock,
        wait_s: float,
        limiter: CapacityLimiter,
        forms: bool = False,
        link: questions.ApprovalLink | None = None,
        shown: questions.ApprovalLink | None = None,
    ) -> None:
        """`wait_s`: seconds to wait for a person; `limiter`: bounds the threads that wait for the database.

        `forms`: the agents' own hosts are trusted with a person's answer; `link`: to the pages of approvals; `shown`: to
        pages that only show, whoever is trusted, since agents read them.
        """
        self._pipeline = pipeline
        self._results = results
        self._clock = clock
        self._wait_s = wait_s
        self._limiter = limiter
        self._waiters = Waiters(lambda call, subject: self._cancel(call, subject, "the client cancelled it."))
        self._wait_scopes: set[CancelScope] = set()
        self._pending = PendingResults()
        self._submission = CallSubmitter(pipeline, results, self._pending)
        self._user = UserElicitation(
            pipeline=pipeline,
            desk=desk,
            clock=clock,
            wait_s=wait_s,
            limiter=limiter,
            forms=forms,
            link=link,
            shown=shown,
        )
        self._stopping = False

    def stop(self) -> None:
        """The process stops: every caller is told at once. Nobody has cancelled their calls, so these go on."""
        self._stopping = True
        self._waiters.stop()
        for wait in self._wait_scopes:
            wait.cancel()

    async def settle(self) -> None:
        """What clients have cancelled is withdrawn."""
        await self._waiters.settle()

    async def run(self, tool: Tool, arguments: dict[str, Any], caller: Caller) -> Answer:
        """The call's answer.

        Raises:
            Fault: the call could not be taken, or its end not be read.
        """
        answered = caller.asking.answered if caller.asking else None
        if answered is not None:
            known, place = await self._thread(self._resume_after_reply, caller.subject, answered)
            return await self._wait(known, place, caller, tool) if known else answers.unknown_call(answered.about.call)
        # A cancel that comes while the thread works is delivered after it, so no submitted call is ever forgotten.
        try:
            outcome, place = await self._thread(self._submission.submit, tool.name, arguments, caller)
        except CallUncertain as fault:
            return answers.indeterminate(fault)
        if isinstance(outcome, Finished) and not caller.asks_for(outcome):
            return answers.ready(outcome)
        return await self._wait(outcome, place, caller, tool)

    async def collect(self, call: ToolCallId, caller: Caller) -> Answer:
        """The answer of a call that was made before; it is waited for, and never ended from here."""
        try:
            outcome, place = await self._thread(self._submission.find, caller.subject, call)
        except StorageUnavailable as fault:
            return answers.unreadable(call, fault)
        return await self._wait(outcome, place, caller, None) if outcome else answers.unknown_call(call)

    def _resume_after_reply(self, subject: Subject, answered: questions.QuestionReply) -> tuple[Outcome | None, int]:
        """In a thread: what became of a call whose question came back with an answer, which counts first."""
        place = self._results.place(subject)
        self._user.vote(subject, answered.about, questions.parse_form(answered.result))
        return self._pipeline.find(subject.tenant_id, subject.session_id, answered.about.call), place

    async def _wait(self, outcome: Outcome, place: int, caller: Caller, tool: Tool | None) -> Answer:
        """Follow the call to its end, or until this caller must have an answer. `tool`: None where it only collects."""
        try:
            return await self._wait_with_progress(outcome, place, caller, tool)
        except StorageUnavailable as fault:  # it was taken, whatever can be read of it now
            if tool is not None:
                self._pending.keep(caller.subject, tool.name, outcome.identity)
            return answers.unreadable(outcome.identity.tool_call_id, fault)

    async def _wait_with_progress(self, outcome: Outcome, place: int, caller: Caller, tool: Tool | None) -> Answer:
        if isinstance(outcome, Denied | Finished):
            return await self._answer(outcome, caller, tool)
        journey = CallProgress(outcome, place, self._clock)
        call = outcome.identity.tool_call_id
        self._waiters.join(call)
        background = [asyncio.create_task(_report_progress(journey, caller.report))] if caller.report else []
        asks = tool is not None and isinstance(outcome, Waiting) and self._user.may_be_asked(caller)
        live = caller.asking is not None and caller.asking.live
        if asks and live:
            background.append(asyncio.create_task(self._user.ask(outcome, caller)))
        wait = CancelScope()
        self._wait_scopes.add(wait)
        if self._stopping:
            wait.cancel()
        try:
            with wait:
                if asks and not live and (question := await self._user.question(outcome, caller)) is not None:
                    return questions.ask_in_result(*question)
                outcome = await self._wait_for_end(outcome, caller, tool, journey)
            if wait.cancelled_caught:
                return answers.interrupted(call, asked=journey.phase is CallPhase.DECISION)
            return await self._answer(outcome, caller, tool, timed_out=journey.timed_out)
        except get_cancelled_exc_class():
            # The same question may be asked twice at once: it is withdrawn only when nobody waits for it any more.
            if tool is not None and not self._stopping:
                # It may end before it is withdrawn, and a client that only lost patience comes again.
                self._pending.keep(caller.subject, tool.name, outcome.identity)
                self._waiters.abandon(call, caller.subject)
            raise
        finally:
            self._wait_scopes.discard(wait)
            self._waiters.leave(call)
            for task in background:
                await _cancel_task(task)

    async def _wait_for_end(
        self, outcome: Outcome, caller: Caller, tool: Tool | None, journey: CallProgress
    ) -> Outcome:
        while not isinstance(outcome, Denied | Finished):
            call_left_s, caller_left_s = self._seconds_left(caller, tool, journey)
            if call_left_s <= 0 and isinstance(outcome, Queued):
                return await self._time_out(outcome, call_timeout_s(tool), caller.subject, journey)
            if caller_left_s <= 0:
                return outcome
            left = min(call_left_s, caller_left_s)
            outcome = await self._results.wait(outcome, caller.subject, journey.place, left, journey.see)
            if isinstance(outcome, Queued) and journey.phase is CallPhase.DECISION:
                journey.enter(CallPhase.WORKER)
        return outcome

    def _seconds_left(self, caller: Caller, tool: Tool | None, journey: CallProgress) -> tuple[float, float]:
        """Seconds that are left: for the call, which is ended then, and for its caller, who is answered while it goes on."""
        deciding = journey.phase is CallPhase.DECISION
        call_left_s = (
            inf if deciding or tool is None else journey.since + call_timeout_s(tool) - self._clock.monotonic()
        )
        # Who waited for a person has used up its client's patience; who told its limit is answered within it.
        bounded = journey.asked or tool is None or caller.wait_s is not None
        wait_s = self._wait_s if caller.wait_s is None else caller.wait_s
        return call_left_s, wait_s - journey.elapsed() if bounded else inf

    async def _time_out(self, outcome: Queued, bound_s: float, subject: Subject, journey: CallProgress) -> Outcome:
        # Every call gets an answer that stays true: cancelled first, so that it cannot run after we have spoken.
        _log.warning("call %s did not end in time (%s)", outcome.identity.tool_call_id, journey.phase.value)
        journey.timed_out = True
        reason = f"it was {journey.phase.value} for {bound_s:.0f} s; is a worker running?"
        await self._cancel(outcome.identity.tool_call_id, subject, reason)
        return await self._results.wait(outcome, subject, journey.place, CANCEL_S)

    async def _cancel(self, call: ToolCallId, subject: Subject, reason: str) -> None:
        place = (subject.tenant_id, subject.session_id)
        try:
            if await self._thread(self._pipeline.cancel, *place, call, reason):
                self._pending.settle(call)
        except Fault:
            _log.warning("call %s could not be cancelled; its own limits end it", call, exc_info=True)

    async def _answer(
        self, outcome: Outcome, caller: Caller, tool: Tool | None, *, timed_out: bool = False
    ) -> types.CallToolResult:
        if tool is not None and isinstance(outcome, Waiting | Queued):
            self._pending.keep(caller.subject, tool.name, outcome.identity)
        if isinstance(outcome, Denied | Finished):
            self._pending.settle(outcome.identity.tool_call_id)
        match outcome:
            case Finished():
                return answers.finished(outcome)
            case Denied():
                return answers.denied(outcome, is_named=caller.has_binding_id)
            case Waiting():
                page = await self._thread(self._user.page, caller.subject, outcome)
                return answers.waiting(outcome, outcome.rules, outcome.who, page)
            case Queued() if timed_out:
                return answers.unfinished(outcome, call_timeout_s(tool))
            case Queued():
                return answers.running(outcome)

    async def _thread(self, function: Callable[..., _T], *args: Any) -> _T:
        return await to_thread.run_sync(function, *args, limiter=self._limiter)


def call_timeout_s(tool: Tool | None) -> float:
    """Seconds in which a call of it must have ended."""
    return tool.timeout_s + CALL_MARGIN_S if tool else inf


async def _report_progress(journey: CallProgress, report: ReportProgress) -> None:
    """Report on events and on every beat, until cancelled. The numbers grow, as MCP asks."""
    said = -1.0
    while True:
        await asyncio.sleep(
            MIN_PROGRESS_GAP_S
        )  # first of all: a call that ends sooner needs no progress, and its answer no stream
        journey.changed.clear()
        said = max(journey.elapsed(), said + 0.001)
        await report(round(said, 3), journey.message())
        try:
            async with asyncio.timeout(PROGRESS_INTERVAL_S):
                await journey.changed.wait()
        except TimeoutError:
            continue


async def _cancel_task(task: asyncio.Task[None]) -> None:
    task.cancel()
    with CancelScope(shield=True):  # short: the task only unwinds
        await asyncio.wait([task])
    if not task.cancelled() and (error := task.exception()):
        _log.warning("a waiting client could not be told, or not be asked: %r", error)
