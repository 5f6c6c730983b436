"""One tool call of an MCP client: handed to the pipeline, followed to its end, answered in every case."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from math import inf
from typing import Any, TypeVar

import mcp_types as types
from anyio import CancelScope, CapacityLimiter, get_cancelled_exc_class, to_thread

from codesdk.approvals import Approval, ApprovalConflict, ApprovalUnknown, Desk, NotAnApprover
from codesdk.domain.clock import Clock
from codesdk.domain.ids import ToolCallId
from codesdk.domain.subjects import Subject
from codesdk.errors import Fault
from codesdk.mcphost import answers, asking
from codesdk.mcphost.caller import Caller, Report
from codesdk.mcphost.followers import Followers
from codesdk.mcphost.journey import Journey, Phase
from codesdk.mcphost.owed import Owed, settles
from codesdk.registry import Tool
from codesdk.storage.faults import StorageUnavailable
from codesdk.toolcalls.pipeline import Pipeline
from codesdk.toolcalls.repeats import CallIdTaken
from codesdk.toolcalls.results import Results
from codesdk.toolcalls.stored import Denied, Finished, Outcome, Queued, Waiting
from codesdk.toolcalls.uncertain import CallUncertain

_log = logging.getLogger(__name__)

_T = TypeVar("_T")
Answer = types.CallToolResult | types.InputRequiredResult

MARGIN_S = 30.0
"""Seconds past a tool's own limit: for its turn, for starting a sandbox, and for recording the end."""
CANCEL_S = 10.0
"""Seconds that a cancelled run may take to end: stopping a tree takes the runner well under one."""
BEAT_S = 5.0
"""Seconds between progress notifications where nothing happens; the shortest idle limit measured is 60 s."""
PREPARE_S = 10.0
"""Seconds until a question without an approval is given up: a worker looks at files in some milliseconds."""
TRIAL_S = 90.0
"""The same, of a call that is tried in a copy of its workspace first; never longer than its client waits."""
AGAIN_S = 0.1
"""Seconds between two looks for it."""
GAP_S = 0.25
"""Least seconds between two notifications, however fast the output comes."""


class Calls:
    """Runs calls for MCP clients; one object per process, used on its event loop."""

    def __init__(
        self,
        *,
        pipeline: Pipeline,
        results: Results,
        desk: Desk,
        clock: Clock,
        wait_s: float,
        limiter: CapacityLimiter,
        forms: bool = False,
        link: asking.Link | None = None,
        shown: asking.Link | None = None,
    ) -> None:
        """`wait_s`: seconds to wait for a person; `limiter`: bounds the threads that wait for the database.

        `forms`: the agents' own hosts are trusted with a person's answer; `link`: to the pages of approvals; `shown`: to
        pages that only show, whoever is trusted, since agents read them.
        """
        self._pipeline = pipeline
        self._results = results
        self._desk = desk
        self._clock = clock
        self._wait_s = wait_s
        self._limiter = limiter
        self._forms = forms
        self._link = link
        self._shown = shown
        self._followers = Followers(lambda call, subject: self._cancel(call, subject, "the client cancelled it."))
        self._waits: set[CancelScope] = set()
        self._owed = Owed()
        self._stopping = False

    def stop(self) -> None:
        """The process stops: every caller is told at once. Nobody has cancelled their calls, so these go on."""
        self._stopping = True
        self._followers.stop()
        for wait in self._waits:
            wait.cancel()

    async def settled(self) -> None:
        """What clients have cancelled is withdrawn."""
        await self._followers.settled()

    async def run(self, tool: Tool, arguments: dict[str, Any], caller: Caller) -> Answer:
        """The call's answer.

        Raises:
            Fault: the call could not be taken, or its end not be read.
        """
        answered = caller.asking.answered if caller.asking else None
        if answered is not None:
            known, place = await self._thread(self._again, caller.subject, answered)
            return await self._wait(known, place, caller, tool) if known else answers.uncollectable(answered.about.call)
        # A cancel that comes while the thread works is delivered after it, so no submitted call is ever forgotten.
        try:
            outcome, place = await self._thread(self._submit, tool.name, arguments, caller)
        except CallUncertain as fault:
            return answers.uncertain(fault)
        if isinstance(outcome, Finished) and not caller.means(outcome):
            return answers.ready(outcome)
        return await self._wait(outcome, place, caller, tool)

    async def collect(self, call: ToolCallId, caller: Caller) -> Answer:
        """The answer of a call that was made before; it is waited for, and never ended from here."""
        try:
            outcome, place = await self._thread(self._find, caller.subject, call)
        except StorageUnavailable as fault:
            return answers.unread(call, fault)
        return await self._wait(outcome, place, caller, None) if outcome else answers.uncollectable(call)

    # -- in a thread -------------------------------------------------------------------------------------------------

    def _submit(self, name: str, arguments: dict[str, Any], caller: Caller) -> tuple[Outcome, int]:
        """What was asked for, on its way; Finished where it was, for a caller that comes again."""
        subject = caller.subject
        place = self._results.place(subject)
        outcome = self._owed_to(subject, name, arguments)
        # Approved while nobody waited, a call has run: asked again, it would be approved and run a second time.
        if outcome is not None and settles(outcome):
            return outcome, place
        try:
            return self._taken(name, arguments, caller), place
        except CallUncertain as fault:
            return self._perhaps_taken(subject, name, fault), place

    def _taken(self, name: str, arguments: dict[str, Any], caller: Caller) -> Outcome:
        given = caller.call_id
        submit = partial(self._pipeline.submit, name, arguments, caller.subject, join=True)
        try:
            return submit(runtime_tool_call_id=given.text if given else None)
        except CallIdTaken as fault:
            if given is None or given.is_binding:
                raise
            _log.info("an agent gave one id to two calls: %s", fault.message)
        return submit()

    def _owed_to(self, subject: Subject, name: str, arguments: dict[str, Any]) -> Outcome | None:
        """What became of the call that this one repeats; None where it repeats none."""
        repeated = self._owed.take(subject, name, arguments)
        if repeated is None:
            return None
        try:
            return self._pipeline.find(subject.tenant_id, subject.session_id, repeated.tool_call_id)
        except Fault:
            self._owed.keep(subject, name, repeated)  # the database is away: it is owed still
            raise

    def _perhaps_taken(self, subject: Subject, name: str, fault: CallUncertain) -> Outcome:
        """Where only the connection broke, another one tells.

        Raises:
            CallUncertain: it tells nothing; the call is owed, in case it is there.
        """
        try:
            found = self._pipeline.find(subject.tenant_id, subject.session_id, fault.identity.tool_call_id)
        except StorageUnavailable:
            found = None
        if found is None:
            self._owed.keep(subject, name, fault.identity)
            raise fault
        return found

    def _again(self, subject: Subject, answered: asking.Answered) -> tuple[Outcome | None, int]:
        place = self._results.place(subject)
        self._vote(subject, answered.about, asking.said(answered.result))
        return self._pipeline.find(subject.tenant_id, subject.session_id, answered.about.call), place

    def _find(self, subject: Subject, call: ToolCallId) -> tuple[Outcome | None, int]:
        place = self._results.place(subject)
        return self._pipeline.find(subject.tenant_id, subject.session_id, call), place

    def _vote(self, subject: Subject, about: asking.Round, said: asking.Said | None) -> None:
        if said is None or not self._forms or not about.form:
            return
        approval = self._desk.find(subject.tenant_id, about.approval)
        if approval.session_id != subject.session_id or not asking.counts_alone(approval):
            return
        try:
            self._pipeline.vote(
                subject.tenant_id,
                about.approval,
                said.verdict,
                digest=about.digest,
                by=subject.principal_id,
                comment=said.comment,
            )
        except (ApprovalConflict, NotAnApprover) as refused:
            _log.info("the answer of a form changed nothing: %s", refused)

    # -- waiting -----------------------------------------------------------------------------------------------------

    async def _wait(self, outcome: Outcome, place: int, caller: Caller, tool: Tool | None) -> Answer:
        """Follow the call to its end, or until this caller must have an answer. `tool`: None where it only collects."""
        try:
            return await self._stay(outcome, place, caller, tool)
        except StorageUnavailable as fault:  # it was taken, whatever can be read of it now
            if tool is not None:
                self._owed.keep(caller.subject, tool.name, outcome.identity)
            return answers.unread(outcome.identity.tool_call_id, fault)

    async def _stay(self, outcome: Outcome, place: int, caller: Caller, tool: Tool | None) -> Answer:
        if isinstance(outcome, Denied | Finished):
            return await self._answer(outcome, caller, tool)
        journey = Journey(outcome, place, self._clock)
        call = outcome.identity.tool_call_id
        self._followers.join(call)
        beside = [asyncio.create_task(_tell(journey, caller.report))] if caller.report else []
        asks = tool is not None and isinstance(outcome, Waiting) and self._may_ask(caller)
        live = caller.asking is not None and caller.asking.live
        if asks and live:
            beside.append(asyncio.create_task(self._ask(outcome, caller)))
        wait = CancelScope()
        self._waits.add(wait)
        if self._stopping:
            wait.cancel()
        try:
            with wait:
                if asks and not live and (question := await self._question(outcome, caller)) is not None:
                    return asking.first_round(*question)
                outcome = await self._follow(outcome, caller, tool, journey)
            if wait.cancelled_caught:
                return answers.interrupted(call, asked=journey.phase is Phase.DECISION)
            return await self._answer(outcome, caller, tool, given_up=journey.given_up)
        except get_cancelled_exc_class():
            # The same question may be asked twice at once: it is withdrawn only when nobody waits for it any more.
            if tool is not None and not self._stopping:
                # It may end before it is withdrawn, and a client that only lost patience comes again.
                self._owed.keep(caller.subject, tool.name, outcome.identity)
                self._followers.abandon(call, caller.subject)
            raise
        finally:
            self._waits.discard(wait)
            self._followers.leave(call)
            for task in beside:
                await _stop(task)

    async def _follow(self, outcome: Outcome, caller: Caller, tool: Tool | None, journey: Journey) -> Outcome:
        while not isinstance(outcome, Denied | Finished):
            of_call, of_caller = self._bounds(caller, tool, journey)
            if of_call <= 0 and isinstance(outcome, Queued):
                return await self._give_up(outcome, of_tool(tool), caller.subject, journey)
            if of_caller <= 0:
                return outcome
            left = min(of_call, of_caller)
            outcome = await self._results.wait(outcome, caller.subject, journey.place, left, journey.see)
            if isinstance(outcome, Queued) and journey.phase is Phase.DECISION:
                journey.enter(Phase.WORKER)
        return outcome

    def _bounds(self, caller: Caller, tool: Tool | None, journey: Journey) -> tuple[float, float]:
        """Seconds that are left: for the call, which is ended then, and for its caller, who is answered while it goes on."""
        deciding = journey.phase is Phase.DECISION
        of_call = inf if deciding or tool is None else journey.since + of_tool(tool) - self._clock.monotonic()
        # Who waited for a person has used up its client's patience; who told its limit is answered within it.
        bounded = journey.asked or tool is None or caller.wait_s is not None
        wait_s = self._wait_s if caller.wait_s is None else caller.wait_s
        return of_call, wait_s - journey.elapsed() if bounded else inf

    async def _give_up(self, outcome: Queued, bound_s: float, subject: Subject, journey: Journey) -> Outcome:
        # Every call gets an answer that stays true: cancelled first, so that it cannot run after we have spoken.
        _log.warning("call %s did not end in time (%s)", outcome.identity.tool_call_id, journey.phase.value)
        journey.given_up = True
        reason = f"it was {journey.phase.value} for {bound_s:.0f} s; is a worker running?"
        await self._cancel(outcome.identity.tool_call_id, subject, reason)
        return await self._results.wait(outcome, subject, journey.place, CANCEL_S)

    async def _cancel(self, call: ToolCallId, subject: Subject, reason: str) -> None:
        place = (subject.tenant_id, subject.session_id)
        try:
            if await self._thread(self._pipeline.cancel, *place, call, reason):
                self._owed.settled(call)
        except Fault:
            _log.warning("call %s could not be cancelled; its own limits end it", call, exc_info=True)

    async def _answer(
        self, outcome: Outcome, caller: Caller, tool: Tool | None, *, given_up: bool = False
    ) -> types.CallToolResult:
        if tool is not None and isinstance(outcome, Waiting | Queued):
            self._owed.keep(caller.subject, tool.name, outcome.identity)
        if isinstance(outcome, Denied | Finished):
            self._owed.settled(outcome.identity.tool_call_id)
        match outcome:
            case Finished():
                return answers.finished(outcome)
            case Denied():
                return answers.denied(outcome, is_named=caller.is_held_to_its_id)
            case Waiting():
                page = await self._thread(self._page, caller.subject, outcome)
                return answers.waiting(outcome, outcome.rules, outcome.who, page)
            case Queued() if given_up:
                return answers.unfinished(outcome, of_tool(tool))
            case Queued():
                return answers.running(outcome)

    # -- asking the session's user ------------------------------------------------------------------------------------

    def _may_ask(self, caller: Caller) -> bool:
        ours = caller.asking
        return (
            (self._forms or self._link is not None)
            and ours is not None
            and ours.answered is None
            and bool(ours.capability)
        )

    async def _question(self, outcome: Outcome, caller: Caller) -> tuple[Approval, types.ElicitRequest] | None:
        """What to ask this client's user, once the approval is there: a worker looks at the files first that it binds."""
        if not isinstance(outcome, Waiting) or caller.asking is None:
            return None
        wait_s = self._wait_s if caller.wait_s is None else caller.wait_s
        due = self._clock.monotonic() + (min(TRIAL_S, wait_s) if outcome.is_tried else PREPARE_S)
        while (approval := await self._thread(self._approval, caller.subject, outcome)) is None:
            if self._clock.monotonic() > due:
                return None
            await asyncio.sleep(AGAIN_S)
        how = partial(asking.question, forms=self._forms, link=self._link)  # in a thread: the link is on record
        asked = await self._thread(how, approval, caller.subject, caller.asking.capability)
        return (approval, asked) if asked is not None else None

    async def _ask(self, outcome: Outcome, caller: Caller) -> None:
        """Put the question to a client that answers while the call waits, and take a form's answer as the user's vote."""
        question = await self._question(outcome, caller)
        if question is not None and caller.asking is not None:
            approval, asked = question
            result = await caller.asking.ask(asked)
            await self._thread(self._vote, caller.subject, asking.round_of(approval, asked), asking.said(result))

    def _page(self, subject: Subject, outcome: Waiting) -> str | None:
        """Where a person sees what is asked; None while it is being prepared."""
        approval = self._approval(subject, outcome) if self._shown is not None else None
        return self._shown(approval, subject) if self._shown is not None and approval is not None else None

    def _approval(self, subject: Subject, outcome: Waiting) -> Approval | None:
        try:
            return self._desk.find(subject.tenant_id, outcome.approval_id)
        except ApprovalUnknown:
            return None  # it is being prepared, or it came to nothing; the call's own row then says so

    async def _thread(self, function: Callable[..., _T], *given: Any) -> _T:
        return await to_thread.run_sync(function, *given, limiter=self._limiter)


def of_tool(tool: Tool | None) -> float:
    """Seconds in which a call of it must have ended."""
    return tool.timeout_s + MARGIN_S if tool else inf


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


async def _stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    with CancelScope(shield=True):  # short: the task only unwinds
        await asyncio.wait([task])
    if not task.cancelled() and (error := task.exception()):
        _log.warning("a waiting client could not be told, or not be asked: %r", error)
