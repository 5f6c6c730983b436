"""Lost attempts: ends a call whose outcome can't be learned any more, and retries it if it only reads (ADR 36)."""

from __future__ import annotations

from typing import NamedTuple

from codesdk.approvals import ApprovalService, GrantCoverage
from codesdk.domain.calls import ToolCall
from codesdk.domain.decisions import Decision, Effect
from codesdk.domain.execution import SandboxSummary
from codesdk.domain.quotas import QueueFull, Quotas, Resource
from codesdk.domain.tool_results import ToolResult
from codesdk.eventlog.log import EventDraft, EventLog
from codesdk.jobs import Wakeups
from codesdk.policy import BundleProvider
from codesdk.registry import RegistryProvider, Tool, UnknownTool
from codesdk.storage.writer import Unit
from codesdk.toolcalls.decision.call_decision import CallDecisions
from codesdk.toolcalls.ending import complete
from codesdk.toolcalls.queue import store as queue
from codesdk.toolcalls.records import call_events, store
from codesdk.toolcalls.records.call_record import CallRecord, ClaimedCall
from codesdk.toolcalls.records.store import UNOWNED
from codesdk.toolcalls.retries import store as retry_store

WORKER_LOST = "WORKER_LOST"
MAX_ATTEMPTS = 3
"""Attempts of one call, the first included; as many as the AWS SDKs make in their standard retry mode. The first loss may be
anything, the second a restart that is still under way; one that is lost a third time is likely what ends its sandbox."""


class Loss(NamedTuple):
    """How an attempt was lost."""

    what: str
    """In a sentence."""
    code: str = WORKER_LOST
    can_return: bool = True
    """False: what it ran in has ended for good, so nothing can be tried again there."""


class NextAttempt(NamedTuple):
    """An attempt that may begin."""

    call: ToolCall
    tool: Tool
    decision: Decision
    cover: GrantCoverage


class LostAttempts:
    """Ends lost attempts, each in one unit."""

    def __init__(
        self,
        *,
        registry: RegistryProvider,
        bundles: BundleProvider,
        approval_service: ApprovalService,
        log: EventLog,
        quotas: Quotas[Unit],
        wakeups: Wakeups,
    ) -> None:
        self._registry = registry
        self._decisions = CallDecisions(bundles, approval_service)
        self._log = log
        self._quotas = quotas
        self._wakeups = wakeups

    def end(
        self,
        unit: Unit,
        claimed: ClaimedCall,
        loss: Loss,
        *,
        last_output: tuple[EventDraft, ...] = (),
        duration_ms: float = 0.0,
    ) -> ToolResult:
        """End an attempt. If the call only reads and policy allows it, queue the next attempt in the same unit.

        Raises:
            IllegalTransition: it is not this worker's any more; nothing is written.
        """
        identity = claimed.stored.identity
        stored = store.find(unit.connection, identity.tool_call_id, hold=True) or claimed.stored
        tool = self._tool(stored)
        only_reads = stored.only_reads(tool)
        next_attempt = (
            self._next_attempt(unit, stored, tool, loss) if only_reads and stored.identity == identity else ""
        )
        result = ToolResult(
            text=f"{loss.what} {_what_follows(next_attempt, only_reads=only_reads)}", is_error=True, code=loss.code
        )
        complete(
            unit,
            self._log,
            claimed,
            result,
            result_ref=None,
            last_output=last_output,
            duration_ms=duration_ms,
            is_indeterminate_outcome=not only_reads,
        )
        if isinstance(next_attempt, NextAttempt):
            self._begin(unit, stored, next_attempt)
        return result

    def _tool(self, stored: CallRecord) -> Tool | None:
        try:
            return self._registry.of(stored.tenant_id).resolve(stored.call.name)
        except UnknownTool:
            return None

    def _next_attempt(self, unit: Unit, stored: CallRecord, tool: Tool | None, loss: Loss) -> NextAttempt | str:
        """The next attempt, if policy allows it without approval; else why there is none, in words.

        Requests no approval: one is for a single attempt, and its approver may be away. The agent may call again.
        `stored`: as its row is in this unit.
        """
        if tool is None or not loss.can_return:
            return "there is nothing to run it on"
        identity = stored.identity
        if identity.attempt >= MAX_ATTEMPTS:
            return f"it was lost {MAX_ATTEMPTS} times"
        if what := stored.blocked_by(tool) or tool.withheld:
            return what
        call = stored.call.model_copy(
            update={"identity": identity.model_copy(update={"attempt": identity.attempt + 1})}
        )
        # Lost calls are not checked: this one was lost, and only reads.
        judged = self._decisions.decide(unit, call, tool, stored.subject, stored.session_facts, find_grant=True)
        decision, cover = judged.decision, judged.cover
        if decision.effect is not Effect.ALLOW:
            return f"policy would {decision.effect} now ({decision.reason})"
        try:
            self._quotas.reserve(unit, stored.tenant_id, Resource.QUEUED_CALLS)
        except QueueFull:
            return "as many calls of its tenant wait as may"
        return NextAttempt(call, tool, decision, cover)

    def _begin(self, unit: Unit, stored: CallRecord, next_attempt: NextAttempt) -> None:
        """Record the next attempt and its decision, and queue it. The previous one has ended in this unit.

        At the end of the unit: Overtaken, where the session was closed meanwhile.

        Raises:
            IllegalTransition: it has not.
        """
        call, subject, cover = next_attempt.call, stored.subject, next_attempt.cover
        judged = call_events.decision_events(
            call, subject, next_attempt.decision, cover, granted=cover.grant is not None
        )
        retry_store.requeue(
            unit.connection,
            call,
            schema_hash=next_attempt.tool.schema_hash,
            serial=next_attempt.tool.serial,
            sources=judged.sources,
            grant=cover.grant.id if cover.grant else None,
        )
        place = (subject.session_id, stored.identity.tool_call_id)
        first = retry_store.latest_payload(unit.connection, *place, "tool.call.requested")
        for draft in (call_events.retry_requested(call, subject, first), *judged.drafts):
            self._log.append(unit, draft)
        # Its close may have looked for queued calls just before this one was: then it is as if it had come first.
        unit.at_end(
            f"session:{subject.session_id}", lambda connection: store.check_open(connection, subject.session_id)
        )
        queue.enqueue(unit, self._wakeups, stored.identity.tool_call_id, subject, stored.host_id)


def _what_follows(next_attempt: NextAttempt | str, *, only_reads: bool) -> str:
    if isinstance(next_attempt, NextAttempt):
        return f"It only reads, so it is run again, as attempt {next_attempt.call.identity.attempt}."
    if only_reads:
        return f"It only reads, and was not run again: {next_attempt}."
    return (
        "Whether it took effect is unknown, and it was not run again. Look at the workspace before you repeat it; "
        "a person is asked about the same call, where the session's mode asks anybody."
    )


def end_lost(unit: Unit, log: EventLog, stored: CallRecord, text: str) -> None:
    """End a running call of a session that ends with it, whichever worker owns it. `text`: all that is known.

    Raises:
        IllegalTransition: it has ended.
    """
    identity = stored.identity
    started = retry_store.latest_payload(
        unit.connection, stored.subject.session_id, identity.tool_call_id, "tool.call.started"
    )
    retry_store.adopt(unit.connection, identity.tool_call_id, UNOWNED)
    claimed = ClaimedCall(
        stored=stored,
        generation=UNOWNED,
        timeout_s=0.0,
        sandbox=SandboxSummary.model_validate(started.get("sandbox", {})),
        environment=started.get("execution_env", "codesdk_docker"),
    )
    result = ToolResult(text=text, is_error=True, code=WORKER_LOST)
    complete(unit, log, claimed, result, result_ref=None, last_output=(), duration_ms=0.0)
