"""A call's way past people: asked, answered, passed on to others, expired. All of it inside units of work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from codesdk.approvals import (
    Approval,
    ApprovalService,
    ApprovalState,
    Grant,
    GrantContext,
    GrantRequest,
    Verdict,
    describe_approvers,
    describe_requirement,
)
from codesdk.domain.calls import CallIdentity, CallState, DenialCode, ToolCall
from codesdk.domain.decisions import ApprovalSpec, Decision, Effect, Evaluation, GrantKind, Speaker
from codesdk.domain.ids import ApprovalId, PrincipalId, TenantId, ToolCallId
from codesdk.domain.payloads import ApprovalDecided, ApprovalEscalated, ApprovalExpired, ApprovalRequested
from codesdk.domain.subjects import Subject
from codesdk.eventlog.log import EventLog
from codesdk.registry import Tool
from codesdk.storage.writer import Unit
from codesdk.toolcalls.approval.digest import approval_digest
from codesdk.toolcalls.approval.summary import approval_summary
from codesdk.toolcalls.ending import deny
from codesdk.toolcalls.previews.preview import PreviewResult
from codesdk.toolcalls.records import call_events, store
from codesdk.toolcalls.records.call_record import CallRecord, Denied, SessionFacts, Waiting
from codesdk.toolcalls.statistics import call_statistics
from codesdk.toolcalls.submission import idempotency

DEFERRAL_TIMEOUT_S = 600.0
"""How long a call waits for a worker that looks at its files; then it is denied, as when nobody answers."""


class ApprovalFlow:
    """Asks people about calls and takes their answers."""

    def __init__(self, desk: ApprovalService, log: EventLog, queue: Callable[[Unit, CallRecord], object]) -> None:
        """`queue`: hands an approved call to its host, in the unit that approves it."""
        self._desk = desk
        self._log = log
        self._queue = queue

    def find_pending(self, unit: Unit, call: ToolCall, subject: Subject) -> Waiting | None:
        """The same question, where somebody is being asked it already."""
        sought = (subject.session_id, call.name, call.identity.input_hash)
        duplicate = idempotency.find_duplicate(unit.connection, *sought, CallState.WAITING)
        if duplicate is not None and duplicate.preparing is not None:
            return waiting_for_deferred(duplicate)
        asked = self._desk.of_call(unit, duplicate.identity) if duplicate is not None else None
        return (
            waiting_for_approval(asked, duplicate.identity)
            if duplicate and asked and asked.state is ApprovalState.PENDING
            else None
        )

    def ask(
        self,
        unit: Unit,
        call: ToolCall,
        tool: Tool,
        decision: Decision,
        facts: SessionFacts,
        *,
        bound: Mapping[str, Any] | None = None,
        tried: PreviewResult | None = None,
        approval: ApprovalId | None = None,
    ) -> Waiting | Denied:
        """Ask about a call that was recorded. `bound`: more facts that a yes is about; they are shown too.

        `tried`: what came of it in a copy; a yes is about that as well. `approval`: the id that its caller has been told
        already.

        Denied: those whose yes it takes are not there, so that waiting for them is no use.
        """
        spec = decision.approval or ApprovalSpec()
        more = dict(bound or {})
        preview = tried.preview if tried else None
        digest = approval_digest(call, tool.behaviour_hash, decision, facts, bound=more, preview=preview)
        store.set_digest(unit.connection, call.identity.tool_call_id, digest)
        seen = {**approval_summary(call, tool, decision, facts), **({"preview": tried.shown} if tried else {})}
        asking = self._desk.request(
            unit,
            call.identity,
            facts.subject,
            spec,
            digest=digest,
            shown={**seen, "bound": more} if more else seen,
            rules=decision.rule_hashes,
            grant=decision.grant,
            approval=approval,
        )
        if asking is None:
            reason = (
                f"A person must approve this, and nobody can: it takes {describe_requirement(spec)}. {decision.reason}"
            )
            stored = self._lock_call(unit, call.identity.tool_call_id)
            return deny(unit, self._log, stored, DenialCode.NO_APPROVER, reason, rules=decision.rules)
        asked = ApprovalRequested(
            approval_id=asking.id,
            tool_call_id=call.identity.tool_call_id,
            digest=digest,
            reason=decision.reason,
            expires_at=asking.expires_at,
            demands=spec.demands or None,
            not_requester=spec.not_requester or None,
        )
        self._log.append(unit, call_events.draft(facts.subject, asked))
        return waiting_for_approval(asking, call.identity)

    def vote(
        self,
        unit: Unit,
        tenant: TenantId,
        approval: str,
        verdict: Verdict,
        *,
        digest: str,
        by: PrincipalId,
        comment: str | None,
        wish: GrantRequest | None = None,
    ) -> Approval:
        """A person's answer, and what came of it.

        Raises:
            ApprovalUnknown, ApprovalConflict, NotAnApprover, GrantNotOffered: nothing was changed.
        """
        found, counted = self._desk.vote(unit, tenant, approval, verdict, digest=digest, by=by, comment=comment)
        if not counted:
            return found
        stored = self._lock_call(unit, found.tool_call_id)
        voice = Evaluation(source=Speaker.USER, result=Effect.ALLOW if verdict is Verdict.APPROVE else Effect.DENY)
        store.add_source(unit.connection, (*stored.sources, voice), found.tool_call_id)
        more = {"approval_id": found.id, "decided_by": by, **({"comment": comment} if comment else {})}
        self._log.append(unit, call_events.policy_evaluated(stored.call, stored.subject, voice, **more))
        if found.state is not ApprovalState.PENDING:
            self._finish_vote(unit, found, stored, verdict, by=by, wish=wish)
        return found

    def expire(self, unit: Unit, approval: Approval) -> bool:
        """Tell that nobody answered in time. False: it was told, or the call had ended."""
        if not self._desk.end(unit, approval.id, ApprovalState.PENDING, ApprovalState.EXPIRED):
            return False
        stored = self._lock_call(unit, approval.tool_call_id)
        if stored.state is not CallState.WAITING:
            return False
        over = ApprovalExpired(approval_id=approval.id, tool_call_id=approval.tool_call_id)
        self._log.append(unit, call_events.draft(stored.subject, over))
        some = (
            f" {len(approval.votes)} said yes, and it takes {describe_approvers(approval)}." if approval.votes else ""
        )
        reason = f"Nobody approved this call in time. It was not rejected.{some}"
        deny(unit, self._log, stored, DenialCode.EXPIRED, reason)
        call_statistics.record_answer(unit, stored.host_id, "expired", approval.expires_at - approval.created_at)
        return True

    def escalate(self, unit: Unit, approval: Approval, number: int, to: str) -> bool:
        """Tell that others may answer too; they may without this. False: it was told."""
        if not self._desk.mark_escalated(unit, approval.id, number):
            return False
        stored = self._lock_call(unit, approval.tool_call_id)
        told = ApprovalEscalated(approval_id=approval.id, tool_call_id=approval.tool_call_id, to=to)
        self._log.append(unit, call_events.draft(stored.subject, told))
        return True

    def _finish_vote(
        self,
        unit: Unit,
        found: Approval,
        stored: CallRecord,
        verdict: Verdict,
        *,
        by: PrincipalId,
        wish: GrantRequest | None,
    ) -> None:
        state: Literal["approved", "rejected"] = "approved" if verdict is Verdict.APPROVE else "rejected"
        wished = wish if verdict is Verdict.APPROVE and wish is not None and wish.kind is not GrantKind.ONCE else None
        grant = self._create_grant(unit, found, stored, wished, by=by) if wished else None
        given = grant.id if grant else None
        outcome = ApprovalDecided(
            approval_id=found.id, tool_call_id=found.tool_call_id, state=state, by=by, grant_id=given
        )
        self._log.append(unit, call_events.draft(stored.subject, outcome))
        call_statistics.record_answer(
            unit, stored.host_id, state, (found.decided_at or found.created_at) - found.created_at
        )
        if verdict is Verdict.APPROVE:
            store.transition(unit.connection, stored.identity, CallState.WAITING, CallState.QUEUED)
            self._queue(unit, stored)
        else:
            said = f" They said: {found.comment}" if found.comment else ""
            reason = f"A person rejected this call.{said}"
            deny(unit, self._log, self._lock_call(unit, found.tool_call_id), DenialCode.REJECTED, reason)

    def _create_grant(
        self, unit: Unit, found: Approval, stored: CallRecord, wish: GrantRequest, *, by: PrincipalId
    ) -> Grant:
        asked = GrantContext(
            call=stored.call,
            subject=stored.subject,
            rules=found.rule_hashes,
            behaviour_hash=str(found.shown.get("behaviour", "")),
            image=stored.image,
            profile=stored.profile,
        )
        return self._desk.grants.issue(unit, wish, asked, found, by=by, reason=found.comment or "")

    def _lock_call(self, unit: Unit, call: ToolCallId) -> CallRecord:
        stored = store.find(unit.connection, call, hold=True)
        assert stored is not None  # noqa: S101 (a foreign key, or inserted in this unit)
        return stored


def waiting_for_deferred(stored: CallRecord) -> Waiting:
    """The outcome of a call about which nobody is asked yet: a worker looks at its files first, or tries it in a copy."""
    tried = stored.preview_tries is not None
    return Waiting(
        identity=stored.identity,
        approval_id=stored.preparing or "",
        reason="It is tried in a copy of the workspace first."
        if tried
        else "The files that it names are looked at first.",
        expires_at=stored.requested_at + DEFERRAL_TIMEOUT_S,
        is_being_previewed=tried,
    )


def waiting_for_approval(approval: Approval, identity: CallIdentity) -> Waiting:
    """The outcome of a call that somebody is asked about."""
    return Waiting(
        identity=identity,
        approval_id=approval.id,
        reason=str(approval.shown.get("reason", "")),
        rules=approval.rules,
        who=describe_approvers(approval),
        expires_at=approval.expires_at,
    )
