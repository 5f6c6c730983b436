"""Runs one tool call for an MCP client: submits it, follows it, and answers in every case."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from math import inf
from typing import Any, TypeVar

import mcp_types as types
from anyio import CancelScope, CapacityLimiter, get_cancelled_exc_class, to_thread

from codesdk.approvals import ApprovalService
from codesdk.domain.calls import CallIdentity, DenialCode
from codesdk.domain.canonical import content_hash
from codesdk.domain.clock import Clock
from codesdk.domain.ids import ToolCallId
from codesdk.domain.subjects import Subject
from codesdk.errors import Fault
from codesdk.mcphost.elicitation import questions
from codesdk.mcphost.elicitation.session_user import UserElicitation
from codesdk.mcphost.tool_calls import answers
from codesdk.mcphost.tool_calls.answers import Answer
from codesdk.mcphost.tool_calls.caller import Caller, ReportProgress
from codesdk.mcphost.tool_calls.progress import Attendance, CallPhase, CallProgress, Waiters
from codesdk.registry import Tool
from codesdk.storage.faults import StorageUnavailable
from codesdk.toolcalls.pipeline import CallIdTaken, CallUncertain, Pipeline, Withdrawal
from codesdk.toolcalls.records.call_record import Denied, Finished, Outcome, Queued, Waiting
from codesdk.toolcalls.results import QUICK_S, ResultWaiter

_log = logging.getLogger(__name__)

_T = TypeVar("_T")

CALL_MARGIN_S = 30.0
"""Seconds beyond a tool's own timeout: for queueing, starting a sandbox and recording the end."""
CANCEL_S = 10.0
"""Seconds for a cancelled run to end; the runner stops a process tree in well under one."""
PROGRESS_INTERVAL_S = 5.0
"""Seconds between progress notifications when nothing happens; the shortest client idle timeout measured is 60 s."""
MIN_PROGRESS_GAP_S = 0.05
"""Minimum seconds between two notifications: half of `DELTA_S`, so that a line which was just logged is not held back."""
MAX_PENDING = 1000
"""Pending results remembered; the oldest is dropped first. A dropped one costs a second approval."""
_CallKey = tuple[str, str, str]
"""Session, tool and input hash."""
_UNDECIDED = (DenialCode.EXPIRED, DenialCode.VOIDED)


class PendingResults:
    """Calls whose caller has no result yet and may send the same call again. In memory only; safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: dict[_CallKey, CallIdentity] = {}
        self._keys: dict[ToolCallId, _CallKey] = {}

    def keep(self, subject: Subject, name: str, identity: CallIdentity) -> None:
        """Remember a call whose caller was told to repeat it, disconnected, or may not have received the answer."""
        key = (subject.session_id, name, identity.input_hash)
        with self._lock:
            self._forget(key)
            self._calls[key] = identity
            self._keys[identity.tool_call_id] = key
            while len(self._calls) > MAX_PENDING:
                self._forget(next(iter(self._calls)))

    def settle(self, call: ToolCallId) -> None:
        """Forget a call that was answered or withdrawn: the same input is a new call from now on."""
        with self._lock:
            if (key := self._keys.get(call)) is not None:
                self._forget(key)

    def take(self, subject: Subject, name: str, arguments: dict[str, Any]) -> CallIdentity | None:
        """The call that this one repeats; None if there is none. Each is returned once.

        Raises:
            NotCanonical: the arguments have no canonical form.
        """
        if not self._calls:
            return None
        key = (subject.session_id, name, content_hash(arguments))
        with self._lock:
            return self._forget(key)

    def _forget(self, key: _CallKey) -> CallIdentity | None:
        identity = self._calls.pop(key, None)
        if identity is not None:
            del self._keys[identity.tool_call_id]
        return identity


class CallHandler:
    """Runs calls for MCP clients; one object per process, used on its event loop."""

    def __init__(
        self,
        *,
        pipeline: Pipeline,
        results: ResultWaiter,
        approval_service: ApprovalService,
        clock: Clock,
        wait_s: float,
        gone_client_grace_s: float,
        limiter: CapacityLimiter,
        forms: bool = False,
        link: questions.ApprovalLink | None = None,
        shown: questions.ApprovalLink | None = None,
    ) -> None:
        """`wait_s`: seconds to wait for an approval; `limiter`: bounds the threads that wait for the database.

        `gone_client_grace_s`, `forms`, `link`, `shown`: as for `McpHost`.
        """
        self._pipeline = pipeline
        self._results = results
        self._clock = clock
        self._wait_s = wait_s
        self._limiter = limiter
        self.waiters = Waiters(self._withdraw, self._cancel_abandoned, gone_client_grace_s)
        self._wait_scopes: set[CancelScope] = set()
        self._pending = PendingResults()
        self._user = UserElicitation(
            pipeline=pipeline,
            approval_service=approval_service,
            clock=clock,
            wait_s=wait_s,
            limiter=limiter,
            forms=forms,
            link=link,
            shown=shown,
        )
        self._stopping = False

    def stop(self) -> None:
        """Answer every caller at once, because the process stops. Their calls continue."""
        self._stopping = True
        self.waiters.stop()
        for wait in self._wait_scopes:
            wait.cancel()

    async def settle(self) -> None:
        """Wait until all cancelled calls are withdrawn."""
        await self.waiters.settle()

    async def run(self, tool: Tool, arguments: dict[str, Any], caller: Caller) -> Answer:
        """Submit the call and return its answer.

        Raises:
            Fault: the call couldn't be submitted, or its outcome couldn't be read.
        """
        reply = caller.asking.answered if caller.asking else None
        if reply is not None:
            known = await self._thread(self._resume_after_reply, caller.subject, reply)
            return await self._wait(known, caller, tool) if known else answers.unknown_call(reply.about.call)
        # A cancel that arrives while the thread runs is delivered after it, so no submitted call is lost.
        try:
            outcome = await self._thread(self._submit, tool, arguments, caller)
        except CallUncertain as fault:
            return answers.indeterminate(fault)
        if isinstance(outcome, Finished) and not caller.asks_for(outcome):
            return answers.ready(outcome)
        return await self._wait(outcome, caller, tool)

    async def collect(self, call: ToolCallId, caller: Caller) -> Answer:
        """The answer of an earlier call. Waits for it, and never cancels it."""
        try:
            outcome = await self._thread(self._find, caller.subject, call)
        except StorageUnavailable as fault:
            return answers.unreadable(call, fault)
        return await self._wait(outcome, caller, None) if outcome else answers.unknown_call(call)

    # -- each of these blocks on the database, and runs in a thread ------------------------------------------------

    def _find(self, subject: Subject, call: ToolCallId) -> Outcome | None:
        return self._pipeline.find(subject.tenant_id, subject.session_id, call)

    def _resume_after_reply(self, subject: Subject, reply: questions.QuestionReply) -> Outcome | None:
        """Record the user's reply, then look up the call that it was about."""
        self._user.vote(subject, reply.about, questions.parse_form(reply.result))
        return self._find(subject, reply.about.call)

    def _submit(self, tool: Tool, arguments: dict[str, Any], caller: Caller) -> Outcome:
        """The call's outcome so far. A repeated call gets the first one's outcome.

        Raises:
            CallUncertain: the database broke off, and whether the call was recorded can't be read now.
        """
        name, arguments = tool.name, tool.normalize(arguments)
        outcome = self._repeated_call(caller.subject, name, arguments)
        # A call approved while nobody waited has run by now: submitted again, it would run a second time.
        if outcome is not None and _is_final(outcome):
            return outcome
        try:
            return self._submit_new(name, arguments, caller)
        except CallUncertain as fault:
            return self._resolve_uncertain(caller.subject, name, fault)

    def _submit_new(self, name: str, arguments: dict[str, Any], caller: Caller) -> Outcome:
        client_id = caller.call_id
        submit = partial(self._pipeline.submit, name, arguments, caller.subject, join=True)
        try:
            return submit(runtime_tool_call_id=client_id.text if client_id else None)
        except CallIdTaken as fault:
            if client_id is None or client_id.is_binding:
                raise
            _log.info("an agent gave one id to two calls: %s", fault.message)
        return submit()

    def _repeated_call(self, subject: Subject, name: str, arguments: dict[str, Any]) -> Outcome | None:
        repeated = self._pending.take(subject, name, arguments)
        if repeated is None:
            return None
        try:
            return self._pipeline.find(subject.tenant_id, subject.session_id, repeated.tool_call_id)
        except Fault:
            self._pending.keep(subject, name, repeated)  # the database is down: the result is still pending
            raise

    def _resolve_uncertain(self, subject: Subject, name: str, fault: CallUncertain) -> Outcome:
        """Read the call back over another connection, in case only the first one broke.

        Raises:
            CallUncertain: it wasn't found; the call is kept as pending, in case it was recorded.
        """
        try:
            found = self._pipeline.find(subject.tenant_id, subject.session_id, fault.identity.tool_call_id)
        except StorageUnavailable:
            found = None
        if found is None:
            self._pending.keep(subject, name, fault.identity)
            raise fault
        return found

    # -- each of these runs on the event loop ----------------------------------------------------------------------

    async def _wait(self, outcome: Outcome, caller: Caller, tool: Tool | None) -> Answer:
        """Follow the call to its end or to this caller's limit. `tool`: None when collecting an earlier call's result."""
        try:
            return await self._wait_with_progress(outcome, caller, tool)
        except StorageUnavailable as fault:  # it was recorded, but can't be read now
            if tool is not None:
                self._pending.keep(caller.subject, tool.name, outcome.identity)
            return answers.unreadable(outcome.identity.tool_call_id, fault)

    async def _wait_with_progress(self, outcome: Outcome, caller: Caller, tool: Tool | None) -> Answer:
        if isinstance(outcome, Denied | Finished):
            return await self._answer(outcome, caller, tool)
        progress = CallProgress(outcome, self._clock)
        call = outcome.identity.tool_call_id
        attendance = Attendance(self.waiters, call, partial(self._abandon, outcome, caller, tool))
        background = [asyncio.create_task(_report_progress(progress, caller.report))] if caller.report else []
        asks = tool is not None and isinstance(outcome, Waiting) and self._user.may_be_asked(caller)
        live = caller.asking is not None and caller.asking.live
        if asks and live:
            background.append(asyncio.create_task(self._user.ask(outcome, caller)))
        wait = CancelScope()
        self._wait_scopes.add(wait)
        if self._stopping:
            wait.cancel()
        try:
            with wait, _watching(caller, attendance):
                if asks and not live and (question := await self._user.question(outcome, caller)) is not None:
                    return questions.ask_in_result(*question)
                outcome = await self._wait_for_end(outcome, caller, tool, progress)
            if wait.cancelled_caught:
                return answers.interrupted(call, asked=progress.phase is CallPhase.DECISION)
            return await self._answer(outcome, caller, tool, timed_out=progress.timed_out)
        except get_cancelled_exc_class():
            attendance.end()
            self._abandon(outcome, caller, tool, gone=caller.left)
            raise
        finally:
            self._wait_scopes.discard(wait)
            attendance.end()
            for task in background:
                await _cancel_task(task)

    def _abandon(self, outcome: Outcome, caller: Caller, tool: Tool | None, *, gone: bool) -> None:
        """The caller cancelled or left. Two may wait for the same call: it ends only when the last one leaves."""
        if tool is not None and not self._stopping:
            # It may end before it is withdrawn, and a client that only timed out sends it again.
            self._pending.keep(caller.subject, tool.name, outcome.identity)
            self.waiters.abandon(outcome.identity.tool_call_id, caller.subject, gone=gone)

    async def _wait_for_end(
        self, outcome: Outcome, caller: Caller, tool: Tool | None, progress: CallProgress
    ) -> Outcome:
        while not isinstance(outcome, Denied | Finished):
            call_left_s, caller_left_s = self._seconds_left(caller, tool, progress)
            if call_left_s <= 0 and isinstance(outcome, Queued):
                return await self._time_out(outcome, call_timeout_s(tool), caller.subject, progress)
            if caller_left_s <= 0:
                return outcome
            left = min(call_left_s, caller_left_s)
            outcome = await self._results.wait(
                outcome, caller.subject, left, progress.see, after_seq=progress.after_seq
            )
            if isinstance(outcome, Queued) and progress.phase is CallPhase.DECISION:
                progress.enter(CallPhase.WORKER)
        return outcome

    def _seconds_left(self, caller: Caller, tool: Tool | None, progress: CallProgress) -> tuple[float, float]:
        """Seconds until the call is cancelled, and until the caller is answered while the call continues."""
        deciding = progress.phase is CallPhase.DECISION
        call_left_s = (
            inf if deciding or tool is None else progress.since + call_timeout_s(tool) - self._clock.monotonic()
        )
        # Waiting for an approval counts against the caller's limit, and so does everything if the client set one.
        bounded = progress.asked or tool is None or caller.wait_s is not None
        wait_s = self._wait_s if caller.wait_s is None else caller.wait_s
        return call_left_s, wait_s - progress.elapsed() if bounded else inf

    async def _time_out(self, outcome: Queued, bound_s: float, subject: Subject, progress: CallProgress) -> Outcome:
        # Cancel first, so that the call can't run after it was answered.
        _log.warning("call %s did not end in time (%s)", outcome.identity.tool_call_id, progress.phase.value)
        progress.timed_out = True
        reason = f"it was {progress.phase.value} for {bound_s:.0f} s; is a worker running?"
        await self._cancel(outcome.identity.tool_call_id, subject, reason)
        return await self._results.wait(outcome, subject, CANCEL_S, after_seq=progress.after_seq)

    async def _withdraw(self, call: ToolCallId, subject: Subject) -> bool:
        """Withdraw the call of a client that left, unless it has begun. Returns whether nothing is left to cancel."""
        try:
            withdrawn = await self._thread(self._pipeline.withdraw, subject.tenant_id, subject.session_id, call)
        except Fault:
            _log.warning("could not withdraw call %s; it is cancelled after the grace", call, exc_info=True)
            return False
        if withdrawn is Withdrawal.WITHDRAWN:
            self._pending.settle(call)
        return withdrawn is not Withdrawal.HAS_BEGUN

    async def _cancel_abandoned(self, call: ToolCallId, subject: Subject) -> None:
        await self._cancel(call, subject, "the client cancelled it.")

    async def _cancel(self, call: ToolCallId, subject: Subject, reason: str) -> None:
        place = (subject.tenant_id, subject.session_id)
        try:
            if await self._thread(self._pipeline.cancel, *place, call, reason):
                self._pending.settle(call)
        except Fault:
            _log.warning("could not cancel call %s; its own limits end it", call, exc_info=True)

    async def _answer(
        self, outcome: Outcome, caller: Caller, tool: Tool | None, *, timed_out: bool = False
    ) -> types.CallToolResult:
        if tool is not None and isinstance(outcome, Waiting | Queued):
            self._pending.keep(caller.subject, tool.name, outcome.identity)
        if isinstance(outcome, Denied | Finished):
            self._pending.settle(outcome.identity.tool_call_id)
        match outcome:
            case Finished():
                return answers.finished(outcome, tool)
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
    """Seconds within which a call of this tool must end."""
    return tool.timeout_s + CALL_MARGIN_S if tool else inf


def _watching(caller: Caller, attendance: Attendance) -> AbstractContextManager[None]:
    return caller.connection.watch(attendance.change) if caller.connection else nullcontext()


async def _report_progress(progress: CallProgress, report: ReportProgress) -> None:
    """Report on events and at intervals, until cancelled. The numbers increase, as MCP requires."""
    reported = -1.0
    await asyncio.sleep(QUICK_S)  # a call that ends sooner needs no progress, and its answer no stream
    while True:
        progress.changed.clear()
        reported = max(progress.elapsed(), reported + 0.001)
        await report(round(reported, 3), progress.take_message())
        await asyncio.sleep(MIN_PROGRESS_GAP_S)
        with suppress(TimeoutError):
            async with asyncio.timeout(PROGRESS_INTERVAL_S - MIN_PROGRESS_GAP_S):
                await progress.changed.wait()


async def _cancel_task(task: asyncio.Task[None]) -> None:
    task.cancel()
    with CancelScope(shield=True):  # short: the task only unwinds
        await asyncio.wait([task])
    if not task.cancelled() and (error := task.exception()):
        _log.warning("could not notify or ask a waiting client: %r", error)


def _is_final(outcome: Outcome) -> bool:
    """Whether a repeated call gets this outcome. An approval that expired or was voided is requested again."""
    undecided = isinstance(outcome, Denied) and outcome.code in _UNDECIDED
    return not isinstance(outcome, Waiting) and not undecided
