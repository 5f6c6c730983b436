"""One call, from the request to the queue: resolve, check, decide, ask or hand over. Nothing runs here."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from codesdk.approvals import Approval, ApprovalService, ApprovalState, GrantRequest, Verdict
from codesdk.approvals.approval import DueEscalation
from codesdk.artifacts import ArtifactService, StoredArtifact
from codesdk.domain.calls import CallIdentity, CallState, DenialCode, ToolCall
from codesdk.domain.canonical import bytes_hash, canonical_json
from codesdk.domain.decisions import Decision, Effect
from codesdk.domain.ids import HostId, IdKind, Ids, PrincipalId, SandboxId, SessionId, TenantId, ToolCallId
from codesdk.domain.quotas import QueueFull, Quotas, Resource
from codesdk.domain.subjects import Subject
from codesdk.eventlog.log import EventLog
from codesdk.jobs import Wakeups
from codesdk.policy import BundleProvider, decide
from codesdk.policy.rollout.shadow import ShadowEvaluator
from codesdk.registry import RegistryProvider, Tool, ToolWithheld
from codesdk.sandbox.port import FileFingerprint
from codesdk.storage.writer import Unit, Writer
from codesdk.toolcalls.approval.bound_files import named_files
from codesdk.toolcalls.approval.deferred import Deferral, DeferredApprovals, DryRunPlan
from codesdk.toolcalls.approval.flow import ApprovalFlow, waiting_for_approval, waiting_for_deferred
from codesdk.toolcalls.decision import approval_limits, indeterminate, rate_limits
from codesdk.toolcalls.decision.grant_check import apply_grants
from codesdk.toolcalls.ending import deny
from codesdk.toolcalls.previews.preview import PreviewResult, wants_preview
from codesdk.toolcalls.queue import fair_queue
from codesdk.toolcalls.records import call_events, store
from codesdk.toolcalls.records.call_record import CallRecord, Denied, EndedCall, Finished, Outcome, Queued, SessionFacts
from codesdk.toolcalls.submission import idempotency
from codesdk.toolcalls.submission.uncertain_commit import record_or_uncertain

SMALL_INPUT = 8 * 1024
"""Canonical bytes; a larger input stands in the log as an artifact."""


class Pipeline:
    """Decides calls and votes. Safe to use from any thread."""

    def __init__(
        self,
        *,
        registry: RegistryProvider,
        bundles: BundleProvider,
        desk: ApprovalService,
        log: EventLog,
        artifacts: ArtifactService,
        writer: Writer,
        wakeups: Wakeups,
        ids: Ids,
        quotas: Quotas[Unit],
        shadow: ShadowEvaluator | None = None,
        limits: approval_limits.ApprovalLimits = approval_limits.NO_APPROVAL_LIMITS,
    ) -> None:
        """`limits`: of what is asked of people."""
        self.registry = registry
        self.bundles = bundles
        self._desk = desk
        self._log = log
        self._artifacts = artifacts
        self._writer = writer
        self._wakeups = wakeups
        self._ids = ids
        self._quotas = quotas
        self._approval_flow = ApprovalFlow(desk, log, self._enqueue_record)
        self._deferred_approvals = DeferredApprovals(
            registry=registry, bundles=bundles, questions=self._approval_flow, log=log, wakeups=wakeups, ids=ids
        )
        self._shadow = shadow
        self._approval_limits = limits

    def submit(
        self,
        name: str,
        arguments: dict[str, Any],
        subject: Subject,
        *,
        runtime_tool_call_id: str | None = None,
        join: bool = False,
    ) -> Outcome:
        """Decide one call and, if nothing stands against it, hand it to the session's host.

        Returns Denied, Waiting or Queued; never runs the tool itself. A call that only repeats one which still waits
        for a person joins it; with `join` it joins one that is queued or runs as well. `runtime_tool_call_id`: whoever
        calls knows it by that; where the session has a call of that id, its outcome is returned, also Finished.

        Raises:
            CallIdTaken: the id is that of a call of another tool, or with another input; nothing was recorded.
            UnknownTool, ToolWithheld, InvalidInput, NotCanonical: nothing was recorded. QuotaExceeded: there is no room
                for a large input. CallUncertain: the database broke off, and whether it has the call is not known.
        """
        tool = self.registry.of(subject.tenant_id).resolve(name)
        if tool.withheld:
            raise ToolWithheld(tool.name, tool.withheld)
        input_bytes = canonical_json(arguments)
        tool.check_input(arguments)
        call = ToolCall(
            identity=CallIdentity(
                tool_call_id=ToolCallId(self._ids.new(IdKind.CALL)),
                runtime_tool_call_id=runtime_tool_call_id,
                input_hash=bytes_hash(input_bytes),
            ),
            name=tool.name,
            input=arguments,
        )
        decision = decide(call, tool, subject, self.bundles.of(subject.tenant_id, subject.policy_hash))
        if self._shadow is not None:
            self._shadow.observe(call, tool, subject, decision)
        deferral = _deferral_of(call, tool, decision)
        input_ref = self._keep_large(call, subject, input_bytes)
        input_text = input_bytes.decode()

        def record(unit: Unit) -> Outcome:
            return self._record(
                unit,
                call,
                tool,
                subject,
                decision=decision,
                deferral=deferral,
                input_text=input_text,
                input_ref=input_ref,
                join=join,
            )

        return record_or_uncertain(call.identity, lambda: self._writer.run(record))

    def vote(
        self,
        tenant: TenantId,
        approval: str,
        verdict: Verdict,
        *,
        digest: str,
        by: PrincipalId,
        comment: str | None,
        wish: GrantRequest | None = None,
        before: Callable[[Unit], None] = lambda _: None,
    ) -> Approval:
        """A person's answer. Where it decides, the call is queued or denied in the same transaction.

        `wish`: what the vote gives beyond this call. `before`: its first step (a ticket is used up); what it raises
        comes out, and a refused vote undoes it.

        Raises:
            ApprovalUnknown, ApprovalConflict, NotAnApprover, GrantNotOffered: nothing was changed.
        """

        def work(unit: Unit) -> Approval:
            before(unit)
            return self._approval_flow.vote(
                unit, tenant, approval, verdict, digest=digest, by=by, comment=comment, wish=wish
            )

        return self._writer.run(work)

    def cancel(self, tenant: TenantId, session: SessionId, call: ToolCallId, reason: str) -> bool:
        """End a call that waits, queues or runs. False: it had ended, or that session of the tenant has no such call.

        A waiting or queued call is denied at once; a running one ends when its runner confirms.
        """
        return self._writer.run(lambda unit: self._cancel(unit, store.CallScope(tenant, session), call, reason))

    def expire_overdue(self) -> int:
        """Deny the calls whose approval nobody gave in time; returns how many."""
        left = self._deferred_approvals.find_expired(self._log.database)
        never_asked = sum(
            self._writer.run(partial(self._deferred_approvals.expire, call=each.identity.tool_call_id)) for each in left
        )
        overdue = self._desk.overdue()
        return never_asked + sum(
            self._writer.run(partial(self._approval_flow.expire, approval=each)) for each in overdue
        )

    def put(self, call: ToolCallId, files: tuple[FileFingerprint, ...], tried: PreviewResult | None = None) -> None:
        """Ask about a call that waits for it, now that its worker has looked at the files that it names.

        `tried`: what came of it in a copy of the workspace, where rules want that.
        """
        self._writer.run(lambda unit: self._deferred_approvals.put(unit, call, files, tried))

    def trial(self, stored: CallRecord) -> DryRunPlan | None:
        """How a call that waits for it is to be tried; None where that is not wanted any more."""
        return self._deferred_approvals.trial(stored)

    def begin_dry_run(self, unit: Unit, stored: CallRecord, sandbox: SandboxId) -> bool:
        """A worker tries it, in a copy of that id. False: it ended meanwhile, and nothing is to be tried."""
        return self._deferred_approvals.begin_dry_run(unit, stored, sandbox)

    def refund_dry_run(self, call: ToolCallId) -> None:
        """The worker that tried it stops; the next one begins anew."""
        self._writer.run(lambda unit: self._deferred_approvals.refund_dry_run(unit, call))

    def escalate_due(self) -> int:
        """Tell in the log of approvals that others may answer by now; returns of how many."""

        def tell(due: DueEscalation) -> bool:
            return self._writer.run(lambda unit: self._approval_flow.escalate(unit, due.approval, due.number, due.to))

        return sum(tell(due) for due in self._desk.due_escalations())

    def find(self, tenant: TenantId, session: SessionId, call: ToolCallId) -> Outcome | None:
        """Where a call stands now; None where that session of the tenant has none of that id."""
        place = store.CallScope(tenant, session)
        with self._log.database.read() as connection:
            ended = store.find_ended(connection, place, call)
            stored = store.find_in_scope(connection, place, call) if ended is None else None
        if ended is not None:
            return _ended_outcome(ended)
        return _outcome_of(stored, lambda: self._desk.latest_of_call(call, stored.identity.attempt)) if stored else None

    # -- each of these runs inside a unit ------------------------------------------------------------------------

    def _record(
        self,
        unit: Unit,
        call: ToolCall,
        tool: Tool,
        subject: Subject,
        *,
        decision: Decision,
        deferral: Deferral,
        input_text: str,
        input_ref: StoredArtifact | None,
        join: bool,
    ) -> Outcome:
        earlier, full = self._find_repeat(unit, call, subject, decision, join=join)
        if earlier is not None:
            return earlier
        decision, deferral = _with_indeterminate(unit, call, tool, subject, decision, deferral=deferral)
        bundle = self.bundles.of(subject.tenant_id, subject.policy_hash)
        decision, cover = apply_grants(unit, self._desk, decision, call=call, tool=tool, subject=subject, bundle=bundle)
        grant = cover.grant
        needs_approval = grant is None and decision.effect is Effect.ASK
        if needs_approval and (waiting := self._approval_flow.find_pending(unit, call, subject)) is not None:
            return waiting
        facts = store.session_facts(unit.connection, subject.session_id)
        if facts is None or not facts.open:
            message = "The session is closed; open another one."
            return Denied(identity=call.identity, code=DenialCode.SESSION_CLOSED, message=message)
        limited, refused = None, DenialCode.POLICY
        if decision.effect is not Effect.DENY and full is None:
            decision, limited, refused = self._admit(unit, call, subject, decision)
        if input_ref is not None:
            self._artifacts.record(unit, input_ref)
        is_granted = grant is not None and decision.effect is Effect.ALLOW and full is None
        judged = call_events.decision_events(call, subject, decision, cover, granted=is_granted)
        store.insert(
            unit.connection,
            call,
            facts,
            input_text=input_text,
            schema_hash=tool.schema_hash,
            serial=tool.serial,
            state=CallState.QUEUED if decision.effect is Effect.ALLOW and full is None else CallState.WAITING,
            sources=judged.sources,
            grant=grant.id if grant and is_granted else None,
        )
        self._log.append(unit, call_events.requested(call, subject, input_ref))
        unit.at_end(
            f"session:{subject.session_id}", lambda connection: store.check_open(connection, subject.session_id)
        )
        for event in judged.drafts:
            self._log.append(unit, event)
        if full is not None:
            return self._deny_now(unit, call, DenialCode.QUEUE_FULL, str(full), full.retry_after_s)
        if decision.effect is Effect.DENY:
            wait_s = limited.retry_after_s if limited else None
            return self._deny_now(unit, call, refused, decision.reason, wait_s, rules=decision.rules)
        return self._ask_or_enqueue(unit, call, tool, decision, facts, deferral=deferral)

    def _find_repeat(
        self, unit: Unit, call: ToolCall, subject: Subject, decision: Decision, *, join: bool
    ) -> tuple[Outcome | None, QueueFull | None]:
        """The call that this one repeats; else whether there is room for one more."""
        if (first := idempotency.find_by_client_id(unit.connection, call, subject)) is not None:
            return _outcome_of(first, lambda: self._desk.of_call(unit, first.identity)), None
        if decision.effect is Effect.DENY:
            return None, None  # what is denied at once never waits
        full = self._reserve_queue_slot(
            unit, subject.tenant_id
        )  # from here on no other process takes a call of the tenant
        duplicate = idempotency.find_in_flight(unit.connection, call, subject) if join else None
        return Queued(identity=duplicate.identity) if duplicate is not None else None, full

    def _ask_or_enqueue(
        self, unit: Unit, call: ToolCall, tool: Tool, decision: Decision, facts: SessionFacts, *, deferral: Deferral
    ) -> Outcome:
        if decision.effect is Effect.ASK:
            return self._deferred_approvals.ask(unit, call, tool, decision, facts, deferral=deferral)
        return self._enqueue(unit, call.identity, facts.subject, facts.host_id)

    def _deny_now(
        self,
        unit: Unit,
        call: ToolCall,
        code: DenialCode,
        reason: str,
        retry_after_s: float | None,
        *,
        rules: tuple[str, ...] = (),
    ) -> Denied:
        stored = self._lock_call(unit, call.identity.tool_call_id)
        refusal = deny(unit, self._log, stored, code, reason, rules=rules)
        return refusal.model_copy(update={"retry_after_s": retry_after_s})

    def _reserve_queue_slot(self, unit: Unit, tenant: TenantId) -> QueueFull | None:
        """Count one more call that waits, under the tenant's row lock; why not, where as many do as may."""
        try:
            self._quotas.reserve(unit, tenant, Resource.QUEUED_CALLS)
        except QueueFull as full:
            return full
        return None

    def _admit(
        self, unit: Unit, call: ToolCall, subject: Subject, decision: Decision
    ) -> tuple[Decision, rate_limits.RateExceeded | None, DenialCode]:
        """The decision, or the denial in its place: under which rate, and what that is called."""
        if self._approval_limits.full(unit, subject, decision):
            return self._approval_limits.refused(decision), None, approval_limits.denial_code(None)
        limited = rate_limits.admit(unit, call, subject, self._approval_limits.rates(decision))
        if limited is None:
            return decision, None, DenialCode.POLICY
        refused = (
            self._approval_limits.refused
            if limited.limit.rule == approval_limits.APPROVAL_RATE
            else rate_limits.rate_denial
        )
        return refused(decision, limited), limited, approval_limits.denial_code(limited)

    def _enqueue(self, unit: Unit, identity: CallIdentity, subject: Subject, host: HostId) -> Queued:
        fair_queue.enqueue(unit, subject.session_id, host, subject.tenant_id)
        unit.after_commit(lambda: self._wakeups.wake(host, identity.tool_call_id), urgent=True)
        return Queued(identity=identity)

    def _enqueue_record(self, unit: Unit, stored: CallRecord) -> Queued:
        return self._enqueue(unit, stored.identity, stored.subject, stored.host_id)

    def _cancel(self, unit: Unit, place: store.CallScope, call: ToolCallId, reason: str) -> bool:
        stored = store.find_in_scope(unit.connection, place, call, hold=True)
        if stored is None or stored.state.terminal:
            return False
        if stored.state is CallState.RUNNING:
            store.request_cancel(unit.connection, call)
            unit.after_commit(lambda: self._wakeups.wake(stored.host_id, stored.subject.session_id))
            return True
        asked = self._desk.of_call(unit, stored.identity)
        if asked is not None:
            self._desk.end(unit, asked.id, asked.state, ApprovalState.CANCELLED)
        deny(unit, self._log, stored, DenialCode.CANCELLED, f"This call was cancelled: {reason}")
        return True

    def _lock_call(self, unit: Unit, call: ToolCallId) -> CallRecord:
        stored = store.find(unit.connection, call, hold=True)
        assert stored is not None  # noqa: S101 (a foreign key, or inserted in this unit)
        return stored

    # -- the rest ------------------------------------------------------------------------------------------------

    def _keep_large(self, call: ToolCall, subject: Subject, content: bytes) -> StoredArtifact | None:
        if len(content) <= SMALL_INPUT:
            return None
        return self._artifacts.put(
            content,
            subject.tenant_id,
            subject.session_id,
            content_type="application/json",
            name=f"{call.identity.tool_call_id}-input.json",
        )


def _outcome_of(stored: CallRecord, asked: Callable[[], Approval | None]) -> Outcome:
    """Where it stands. `asked`: reads what a person is asked about it."""
    if stored.state.terminal and stored.result is not None:
        return _ended_outcome(EndedCall(identity=stored.identity, state=stored.state, result=stored.result))
    if stored.state is CallState.WAITING and stored.preparing is not None:
        return waiting_for_deferred(stored)
    approval = asked() if stored.state is CallState.WAITING else None
    return waiting_for_approval(approval, stored.identity) if approval else Queued(identity=stored.identity)


def _ended_outcome(ended: EndedCall) -> Outcome:
    if ended.state is CallState.COMPLETED:
        return Finished(identity=ended.identity, result=ended.result)
    code = DenialCode(ended.result.code or DenialCode.POLICY)
    return Denied(identity=ended.identity, code=code, message=ended.result.text)


def _deferral_of(call: ToolCall, tool: Tool, decision: Decision) -> Deferral:
    asks = decision.effect is Effect.ASK
    return Deferral(files=asks and bool(named_files(tool, call.input)), preview=wants_preview(tool, decision))


def _with_indeterminate(
    unit: Unit, call: ToolCall, tool: Tool, subject: Subject, decision: Decision, *, deferral: Deferral
) -> tuple[Decision, Deferral]:
    weighed = indeterminate.require_approval_if_indeterminate(unit.connection, call, tool, subject, decision)
    return weighed, deferral if weighed is decision else _deferral_of(call, tool, weighed)
