"""One call, from the request to the queue: resolve, check, decide, ask or hand over. Nothing runs here."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from functools import partial
from typing import Any, NamedTuple

from codesdk.approvals import Approval, ApprovalService, ApprovalState, GrantRequest, Verdict
from codesdk.artifacts import ArtifactService, StoredArtifact
from codesdk.domain.calls import CallIdentity, CallState, DenialCode, ToolCall
from codesdk.domain.canonical import bytes_hash, canonical_json
from codesdk.domain.decisions import Decision, Effect
from codesdk.domain.ids import IdKind, Ids, PrincipalId, SessionId, TenantId, ToolCallId
from codesdk.domain.quotas import QueueFull, Quotas, Resource
from codesdk.domain.subjects import Subject
from codesdk.errors import Fault
from codesdk.eventlog.log import EventLog
from codesdk.jobs import Wakeups
from codesdk.policy.rollout.shadow import ShadowEvaluator
from codesdk.registry import RegistryProvider, Tool, ToolWithheld
from codesdk.storage.faults import CommitIndeterminate
from codesdk.storage.writer import Unit, Writer
from codesdk.toolcalls.approval.deferred import Deferral, DeferredApprovals
from codesdk.toolcalls.approval.flow import ApprovalFlow, waiting_for_approval, waiting_for_deferred
from codesdk.toolcalls.decision.call_decision import Admission, CallDecision, CallDecisions
from codesdk.toolcalls.decision.log_limits import LogLimits, LogRefusal
from codesdk.toolcalls.ending import deny
from codesdk.toolcalls.queue import store as queue
from codesdk.toolcalls.records import call_events, store
from codesdk.toolcalls.records.call_record import CallRecord, Denied, EndedCall, Finished, Outcome, Queued, SessionFacts
from codesdk.toolcalls.statistics import store as statistics

SMALL_INPUT = 8 * 1024
"""Canonical bytes; a larger input becomes an artifact, which the log refers to."""


class CallUncertain(Fault):
    """The database connection broke while a call was recorded, so it is unknown whether it was."""

    code = "CALL_UNCERTAIN"
    retryable = True
    status = 503

    def __init__(self, identity: CallIdentity, cause: CommitIndeterminate) -> None:
        super().__init__(cause.message, advice=cause.advice())
        self.identity = identity
        """The call's identity, if it was recorded."""


class CallIdTaken(Fault):
    """The client gave the id to another call of the session. Nothing was recorded."""

    code = "CALL_ID_TAKEN"
    status = 409

    def __init__(self, first: CallRecord, call: ToolCall) -> None:
        of = "that tool with another input" if first.call.name == call.name else first.call.name
        super().__init__(
            f"The session has a call with the id {call.identity.runtime_tool_call_id}: one of {of}.",
            advice="Give each call an id of its own; only a repetition, with the same input, has the id of its call.",
            details={"tool_call_id": first.identity.tool_call_id, "tool": first.call.name},
        )


class Withdrawal(Enum):
    """What became of a call whose client left."""

    WITHDRAWN = auto()
    HAS_BEGUN = auto()
    HAD_ENDED = auto()


class _Request(NamedTuple):
    """A checked call, with all that is worked out before its transaction, which holds up every other one."""

    call: ToolCall
    tool: Tool
    subject: Subject
    policy: Decision
    """What policy alone says."""
    deferral: Deferral
    """What an approval under that decision would wait for."""
    input_text: str
    input_ref: StoredArtifact | None
    join: bool
    refusal: LogRefusal | None
    """Why it is not recorded, unless it repeats another call."""
    upload: StoredArtifact | None
    """Bytes that its input names."""


class Pipeline:
    """Submits, votes on, cancels and finds calls. Safe to use from any thread."""

    def __init__(
        self,
        *,
        registry: RegistryProvider,
        decisions: CallDecisions,
        approvals: ApprovalFlow,
        deferred: DeferredApprovals,
        approval_service: ApprovalService,
        log: EventLog,
        artifacts: ArtifactService,
        writer: Writer,
        wakeups: Wakeups,
        ids: Ids,
        quotas: Quotas[Unit],
        shadow: ShadowEvaluator | None = None,
        log_limits: LogLimits | None = None,
    ) -> None:
        """`log_limits`: None for no limits on what is recorded."""
        self._registry = registry
        self._decisions = decisions
        self._approvals = approvals
        self._deferred = deferred
        self._approval_service = approval_service
        self._log = log
        self._artifacts = artifacts
        self._writer = writer
        self._wakeups = wakeups
        self._ids = ids
        self._quotas = quotas
        self._shadow = shadow
        self._log_limits = log_limits

    def submit(
        self,
        name: str,
        arguments: dict[str, Any],
        subject: Subject,
        *,
        runtime_tool_call_id: str | None = None,
        join: bool = False,
        transfer: bool = False,
        upload: StoredArtifact | None = None,
    ) -> Outcome:
        """Decide one call and, if nothing stands against it, hand it to the session's host.

        Returns Denied, Waiting or Queued; never runs the tool itself. A call refused for the size of the log is Denied, too,
        but leaves no record. A call that repeats one which waits for approval
        joins it; with `join` it also joins an equal call that is queued or runs. `runtime_tool_call_id`: the client's id
        for the call; if the session has a call of that id, returns its outcome, which may be Finished.
        `transfer`: the input may have the arguments of `registry.transfers`; `upload`: the bytes that it names, which are
        recorded with the call.

        Raises:
            CallIdTaken: the id is that of a call of another tool, or with another input; nothing was recorded.
            UnknownTool, ToolWithheld, InvalidInput, NotCanonical: nothing was recorded. QuotaExceeded: there is no room
                for a large input. CallUncertain: the database broke off, and whether it has the call is not known.
        """
        tool = self._registry.of(subject.tenant_id).resolve(name)
        if tool.withheld:
            raise ToolWithheld(tool.name, tool.withheld)
        # From here on nobody sees what the client sent: policy, the record and the tool have the same input.
        arguments = tool.normalize(arguments)
        content = canonical_json(arguments)
        tool.check_input(arguments, transfer=transfer)
        call = ToolCall(
            identity=CallIdentity(
                tool_call_id=ToolCallId(self._ids.new(IdKind.CALL)),
                runtime_tool_call_id=runtime_tool_call_id,
                input_hash=bytes_hash(content),
            ),
            name=tool.name,
            input=arguments,
        )
        policy = self._decisions.by_policy(call, tool, subject)
        if self._shadow is not None:
            self._shadow.observe(call, tool, subject, policy)
        limits = self._log_limits
        refusal = limits.check_early(subject.tenant_id, subject.session_id) if limits is not None else None
        request = _Request(
            call,
            tool,
            subject,
            policy,
            deferral=Deferral.of(call, tool, policy) if policy.effect is Effect.ASK else Deferral(),
            input_text=content.decode(),
            input_ref=self._keep_large(call, subject, content) if refusal is None else None,
            join=join,
            refusal=refusal,
            upload=upload,
        )
        try:
            return self._writer.run(partial(self._submit, request=request))
        except CommitIndeterminate as fault:
            raise CallUncertain(call.identity, fault) from fault

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
        """Record a person's vote. If it decides, queues or denies the call in the same transaction.

        `wish`: the grant that the vote gives beyond this call. `before`: runs first in the transaction, to use up a
        one-time link; a refused vote undoes it.

        Raises:
            ApprovalUnknown, ApprovalConflict, NotAnApprover, GrantNotOffered: nothing was changed.
        """

        def work(unit: Unit) -> Approval:
            before(unit)
            return self._approvals.vote(
                unit, tenant, approval, verdict, digest=digest, by=by, comment=comment, wish=wish
            )

        return self._writer.run(work)

    def cancel(self, tenant: TenantId, session: SessionId, call: ToolCallId, reason: str) -> bool:
        """End a call that waits, queues or runs. False: it had ended, or that session of the tenant has no such call.

        A waiting or queued call is denied at once; a running one ends when its runner confirms.
        """
        return self._writer.run(lambda unit: self._cancel(unit, store.CallScope(tenant, session), call, reason))

    def withdraw(self, tenant: TenantId, session: SessionId, call: ToolCallId) -> Withdrawal:
        """End a call that waits or is queued, because its client left; one that has begun continues.

        It never began, so its client's id is free again: a client that returns makes the call anew under the same id.
        """
        return self._writer.run(lambda unit: self._withdraw(unit, store.CallScope(tenant, session), call))

    def find(self, tenant: TenantId, session: SessionId, call: ToolCallId) -> Outcome | None:
        """The outcome of a call so far; None if that session of the tenant has no such call."""
        place = store.CallScope(tenant, session)
        with self._log.database.read() as connection:
            ended = store.find_ended(connection, place, call)
            stored = store.find_in_scope(connection, place, call) if ended is None else None
        if ended is not None:
            return _ended_outcome(ended)
        return (
            _outcome_of(stored, lambda: self._approval_service.latest_of_call(call, stored.identity.attempt))
            if stored
            else None
        )

    # -- each of these runs inside a unit ------------------------------------------------------------------------

    def _submit(self, unit: Unit, request: _Request) -> Outcome:
        """Answer a call that repeats another (ADR 41); else decide it and record it.

        Two processes can't both miss a repeated id: a unique index makes the later transaction run again. They can't both
        miss an equal call either: both look for it while they hold the tenant's row.
        """
        call, subject = request.call, request.subject
        if (first := _find_same_id(unit, call, subject.session_id)) is not None:
            return _outcome_of(first, lambda: self._approval_service.of_call(unit, first.identity))
        full: QueueFull | None = None
        if request.policy.effect is not Effect.DENY:  # a denial takes no place in the queue
            # From here on no other process records a call of the tenant.
            full = self._reserve_queue_slot(unit, subject.tenant_id)
            if request.join:
                twin = store.find_equal(
                    unit.connection, subject.session_id, call, (CallState.QUEUED, CallState.RUNNING)
                )
                if twin is not None:
                    return Queued(identity=twin.identity)
        facts = store.session_facts(unit.connection, subject.session_id)
        if facts is None:
            return _session_closed(call)
        judged = self._decisions.decide(
            unit, call, request.tool, subject, facts, policy=request.policy, check_lost=True, find_grant=True
        )
        if judged.decision.effect is Effect.ASK:
            twin = store.find_equal(unit.connection, subject.session_id, call, (CallState.WAITING,))
            if (waiting := self._approvals.find_pending(unit, twin)) is not None:
                return waiting
        if (refused := self._refuse_unrecorded(unit, request, facts)) is not None:
            return refused
        return self._record(unit, request, facts, judged, full=full)

    def _record(
        self, unit: Unit, request: _Request, facts: SessionFacts, judged: CallDecision, *, full: QueueFull | None
    ) -> Outcome:
        """Record the call with its decision, and deny, ask or queue it."""
        call, subject = request.call, request.subject
        admission = Admission(judged.decision)
        if judged.decision.effect is not Effect.DENY and full is None:
            admission = self._decisions.admit(unit, call, subject, judged.decision, tool=request.tool, facts=facts)
        decision = admission.decision
        self._insert(unit, request, facts, decision, judged, full=full)
        if full is not None:
            return self._deny(unit, call, DenialCode.QUEUE_FULL, str(full), full.retry_after_s)
        match decision.effect:
            case Effect.DENY:
                wait_s = admission.retry_after_s
                return self._deny(unit, call, admission.code, decision.reason, wait_s, rules=decision.rules)
            case Effect.ASK:
                is_by_policy = judged.decision is request.policy
                deferral = request.deferral if is_by_policy else Deferral.of(call, request.tool, decision)
                return self._deferred.ask(unit, call, request.tool, decision, facts, deferral=deferral)
            case Effect.ALLOW:
                queue.enqueue(unit, self._wakeups, call.identity.tool_call_id, facts.subject, facts.host_id)
                return Queued(identity=call.identity)

    def _insert(
        self,
        unit: Unit,
        request: _Request,
        facts: SessionFacts,
        decision: Decision,
        judged: CallDecision,
        *,
        full: QueueFull | None,
    ) -> None:
        """Write the call's row and its first events: the request, and who decided what."""
        call, subject, grant = request.call, request.subject, judged.cover.grant
        for artifact in filter(None, (request.input_ref, request.upload)):
            self._artifacts.record(unit, artifact)
        is_queued = decision.effect is Effect.ALLOW and full is None
        is_granted = is_queued and grant is not None
        events = call_events.decision_events(call, subject, decision, judged.cover, granted=is_granted)
        store.insert(
            unit.connection,
            call,
            facts,
            input_text=request.input_text,
            schema_hash=request.tool.schema_hash,
            serial=request.tool.serial,
            state=CallState.QUEUED if is_queued else CallState.WAITING,
            sources=events.sources,
            grant=grant.id if grant and is_granted else None,
        )
        requested = call_events.requested(call, subject, request.input_ref)
        self._log.append(unit, requested, row_bytes=len(request.input_text.encode()))
        unit.at_end(
            f"session:{subject.session_id}", lambda connection: store.check_open(connection, subject.session_id)
        )
        for event in events.drafts:
            self._log.append(unit, event)

    def _deny(
        self,
        unit: Unit,
        call: ToolCall,
        code: DenialCode,
        reason: str,
        retry_after_s: float | None,
        *,
        rules: tuple[str, ...] = (),
    ) -> Denied:
        stored = store.lock(unit.connection, call.identity.tool_call_id)
        refusal = deny(unit, self._log, stored, code, reason, rules=rules)
        return refusal.model_copy(update={"retry_after_s": retry_after_s})

    def _refuse_unrecorded(self, unit: Unit, request: _Request, facts: SessionFacts) -> Denied | None:
        """Refuse a call of a closed session, or one that its log has no room for.

        Of the latter only a count is written: a record of each refusal would fill the log, too.
        """
        call, limits = request.call, self._log_limits
        if not facts.open:
            return _session_closed(call)
        refusal = request.refusal
        if refusal is None and limits is not None:
            refusal = limits.check_session(request.subject.session_id, facts.log_bytes)
        if refusal is None:
            return None
        code, message, retry_after_s = refusal
        statistics.count_denial(unit, request.subject.tenant_id, code)
        return Denied(identity=call.identity, code=code, message=message, retry_after_s=retry_after_s)

    def _reserve_queue_slot(self, unit: Unit, tenant: TenantId) -> QueueFull | None:
        """Count one more waiting call, under the tenant's row lock. Returns why not, if the queue is full."""
        try:
            self._quotas.reserve(unit, tenant, Resource.QUEUED_CALLS)
        except QueueFull as full:
            return full
        return None

    def _cancel(self, unit: Unit, place: store.CallScope, call: ToolCallId, reason: str) -> bool:
        stored = store.find_in_scope(unit.connection, place, call, hold=True)
        if stored is None or stored.state.terminal:
            return False
        if stored.state is CallState.RUNNING:
            store.request_cancel(unit.connection, call)
            unit.after_commit(lambda: self._wakeups.wake(stored.host_id, stored.subject.session_id))
            return True
        self._end_unstarted(unit, stored, reason)
        return True

    def _withdraw(self, unit: Unit, place: store.CallScope, call: ToolCallId) -> Withdrawal:
        stored = store.find_in_scope(unit.connection, place, call, hold=True)
        if stored is None or stored.state.terminal:
            return Withdrawal.HAD_ENDED
        if stored.state is CallState.RUNNING or stored.identity.attempt > 1:
            return Withdrawal.HAS_BEGUN  # a further attempt waits, but an earlier one ran
        self._end_unstarted(unit, stored, "its client left before it began.")
        store.release_client_id(unit.connection, call)
        return Withdrawal.WITHDRAWN

    def _end_unstarted(self, unit: Unit, stored: CallRecord, reason: str) -> None:
        asked = self._approval_service.of_call(unit, stored.identity)
        if asked is not None:
            self._approval_service.end(unit, asked.id, asked.state, ApprovalState.CANCELLED)
        deny(unit, self._log, stored, DenialCode.CANCELLED, f"This call was cancelled: {reason}")

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


def _find_same_id(unit: Unit, call: ToolCall, session: SessionId) -> CallRecord | None:
    """The session's call with the same client-given id, in any state.

    Raises:
        CallIdTaken: it is of another tool, or has another input.
    """
    given = call.identity.runtime_tool_call_id
    first = store.find_by_client_id(unit.connection, session, given) if given is not None else None
    if first is None or (first.call.name, first.identity.input_hash) == (call.name, call.identity.input_hash):
        return first
    raise CallIdTaken(first, call)


def _outcome_of(stored: CallRecord, asked: Callable[[], Approval | None]) -> Outcome:
    """The outcome so far. `asked`: reads its approval."""
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


def _session_closed(call: ToolCall) -> Denied:
    message = "The session is closed; open another one."
    return Denied(identity=call.identity, code=DenialCode.SESSION_CLOSED, message=message)
