"""One more attempt of a call that was lost while it ran: what must hold for it, and its beginning (ADR 36)."""

from __future__ import annotations

from typing import NamedTuple

from codesdk.approvals import ApprovalService, GrantCoverage
from codesdk.domain.calls import ToolCall
from codesdk.domain.decisions import Decision, Effect
from codesdk.domain.quotas import QueueFull, Quotas, Resource
from codesdk.eventlog.log import EventLog
from codesdk.jobs import Wakeups
from codesdk.policy import BundleProvider
from codesdk.registry import RegistryProvider, Tool
from codesdk.storage.writer import Unit
from codesdk.toolcalls.decision.call_decision import CallDecisions
from codesdk.toolcalls.queue import store as queue
from codesdk.toolcalls.records import call_events, store
from codesdk.toolcalls.records.call_record import CallRecord
from codesdk.toolcalls.retries import store as retry_store

MAX_ATTEMPTS = 3
"""Attempts of one call, the first included; as many as the AWS SDKs make in their standard retry mode. The first loss may be
anything, the second a restart that is still under way; one that is lost a third time is likely what ends its sandbox."""


class NextAttempt(NamedTuple):
    """An attempt that may begin."""

    call: ToolCall
    tool: Tool
    decision: Decision
    cover: GrantCoverage


class Retries:
    """Its methods run inside the unit that ends the attempt before."""

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
        """`wakeups`: tell the host that it may begin."""
        self.registry = registry
        self._decisions = CallDecisions(bundles, approval_service)
        self._log = log
        self._quotas = quotas
        self._wakeups = wakeups

    def next_attempt(self, unit: Unit, stored: CallRecord, tool: Tool) -> NextAttempt | str:
        """The attempt after this one, which policy lets through by itself now; or why there is none, in words.

        Nobody is asked: a yes is for one attempt, and whoever gave it may be gone. The agent may call again, which asks.
        `stored`: as its row is in this unit.
        """
        identity = stored.identity
        if identity.attempt >= MAX_ATTEMPTS:
            return f"it was lost {MAX_ATTEMPTS} times"
        if what := stored.blocked_by(tool) or tool.withheld:
            return what
        call = stored.call.model_copy(
            update={"identity": identity.model_copy(update={"attempt": identity.attempt + 1})}
        )
        # Without a look at lost calls: this one was lost, and only reads.
        judged = self._decisions.decide(unit, call, tool, stored.subject, stored.session_facts, find_grant=True)
        decision, cover = judged.decision, judged.cover
        if decision.effect is not Effect.ALLOW:
            return f"policy would {decision.effect} now ({decision.reason})"
        try:
            self._quotas.reserve(unit, stored.tenant_id, Resource.QUEUED_CALLS)
        except QueueFull:
            return "as many calls of its tenant wait as may"
        return NextAttempt(call, tool, decision, cover)

    def begin(self, unit: Unit, stored: CallRecord, next_attempt: NextAttempt) -> None:
        """Request it, with what policy says of it, and have its host take it up. The one before has ended in this unit.

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
        for said in (call_events.retry_requested(call, subject, first), *judged.drafts):
            self._log.append(unit, said)
        # Its close may have looked for queued calls just before this one was: then it is as if it had come first.
        unit.at_end(
            f"session:{subject.session_id}", lambda connection: store.check_open(connection, subject.session_id)
        )
        queue.enqueue(unit, self._wakeups, stored.identity.tool_call_id, subject, stored.host_id)
