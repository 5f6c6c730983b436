"""Approvals of calls: request, vote, escalation, expiry."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
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
from codesdk.approvals.approval import DueEscalation
from codesdk.domain.calls import CallIdentity, CallState, DenialCode, ToolCall
from codesdk.domain.decisions import ApprovalSpec, Decision, Effect, Evaluation, GrantKind, Speaker
from codesdk.domain.ids import ApprovalId, PrincipalId, TenantId
from codesdk.domain.payloads import ApprovalDecided, ApprovalEscalated, ApprovalExpired, ApprovalRequested
from codesdk.eventlog.log import EventLog
from codesdk.jobs import Wakeups
from codesdk.registry import Tool
from codesdk.storage.writer import Unit, Writer
from codesdk.toolcalls.approval.digest import approval_digest
from codesdk.toolcalls.approval.summary import approval_summary
from codesdk.toolcalls.ending import deny
from codesdk.toolcalls.previews.preview import PreviewResult
from codesdk.toolcalls.queue import store as queue
from codesdk.toolcalls.records import call_events, store
from codesdk.toolcalls.records.call_record import CallRecord, Denied, SessionFacts, Waiting
from codesdk.toolcalls.statistics import store as statistics

DEFERRAL_TIMEOUT_S = 600.0
"""How long a deferred approval waits for a worker; then the call is denied, as an expired one is."""


class ApprovalFlow:
    """Requests approvals of calls, and applies votes, expiries and escalations. Safe to use from any thread."""

    def __init__(self, approval_service: ApprovalService, log: EventLog, writer: Writer, wakeups: Wakeups) -> None:
        """`wakeups`: wake the host of an approved call."""
        self._approval_service = approval_service
        self._log = log
        self._writer = writer
        self._wakeups = wakeups

    def expire_overdue(self) -> int:
        """Deny the calls that were not approved in time; returns how many."""
        return sum(self._writer.run(partial(self._expire, approval=each)) for each in self._approval_service.overdue())

    def escalate_due(self) -> int:
        """Log that more people may answer by now; returns for how many approvals."""
        return sum(
            self._writer.run(partial(self._escalate, due=each)) for each in self._approval_service.due_escalations()
        )

    # -- each of these runs inside a unit ------------------------------------------------------------------------

    def find_pending(self, unit: Unit, duplicate: CallRecord | None) -> Waiting | None:
        """The outcome of an equal call that waits, if people are being asked about it."""
        if duplicate is None or duplicate.preparing is not None:
            return waiting_for_deferred(duplicate) if duplicate else None
        asked = self._approval_service.of_call(unit, duplicate.identity)
        is_pending = asked is not None and asked.state is ApprovalState.PENDING
        return waiting_for_approval(asked, duplicate.identity) if asked and is_pending else None

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
        scripts: Sequence[dict[str, Any]] = (),
        approval: ApprovalId | None = None,
    ) -> Waiting | Denied:
        """Request approval of a recorded call. `bound`: more facts that the approval binds and shows.

        `tried`: the dry run, which the approval binds too. `scripts`: the text of scripts among the bound files.
        `approval`: the id that the caller knows already.

        Denied: no approver that the rule demands exists.
        """
        spec = decision.approval or ApprovalSpec()
        more = dict(bound or {})
        preview = tried.preview if tried else None
        digest = approval_digest(call, tool.behaviour_hash, decision, facts, bound=more, preview=preview)
        store.set_digest(unit.connection, call.identity.tool_call_id, digest)
        seen = {
            **approval_summary(call, tool, decision, facts),
            **({"preview": tried.shown} if tried else {}),
            **({"scripts": list(scripts)} if scripts else {}),
            **({"bound": more} if more else {}),
        }
        asking = self._approval_service.request(
            unit,
            call.identity,
            facts.subject,
            spec,
            digest=digest,
            shown=seen,
            rules=decision.rule_hashes,
            grant=decision.grant,
            approval=approval,
        )
        if asking is None:
            reason = (
                f"A person must approve this, and nobody can: it takes {describe_requirement(spec)}. {decision.reason}"
            )
            stored = store.lock(unit.connection, call.identity.tool_call_id)
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
        self._log.append(
            unit, call_events.draft(facts.subject, asked), row_bytes=len(json.dumps(seen, ensure_ascii=False).encode())
        )
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
        """Record a person's vote, and queue or deny the call where it decides.

        Raises:
            ApprovalUnknown, ApprovalConflict, NotAnApprover, GrantNotOffered: nothing was changed.
        """
        found, counted = self._approval_service.vote(
            unit, tenant, approval, verdict, digest=digest, by=by, comment=comment
        )
        if not counted:
            return found
        stored = store.lock(unit.connection, found.tool_call_id)
        voice = Evaluation(source=Speaker.USER, result=Effect.ALLOW if verdict is Verdict.APPROVE else Effect.DENY)
        store.add_source(unit.connection, (*stored.sources, voice), found.tool_call_id)
        more = {"approval_id": found.id, "decided_by": by, **({"comment": comment} if comment else {})}
        self._log.append(unit, call_events.policy_evaluated(stored.call, stored.subject, voice, **more))
        if found.state is not ApprovalState.PENDING:
            self._finish_vote(unit, found, stored, verdict, by=by, wish=wish)
        return found

    def _expire(self, unit: Unit, approval: Approval) -> bool:
        """Deny a call that was not approved in time. False: that was done already, or the call had ended."""
        if not self._approval_service.end(unit, approval.id, ApprovalState.PENDING, ApprovalState.EXPIRED):
            return False
        stored = store.lock(unit.connection, approval.tool_call_id)
        if stored.state is not CallState.WAITING:
            return False
        over = ApprovalExpired(approval_id=approval.id, tool_call_id=approval.tool_call_id)
        self._log.append(unit, call_events.draft(stored.subject, over))
        some = (
            f" {len(approval.votes)} said yes, and it takes {describe_approvers(approval)}." if approval.votes else ""
        )
        reason = f"Nobody approved this call in time. It was not rejected.{some}"
        deny(unit, self._log, stored, DenialCode.EXPIRED, reason)
        statistics.record_answer(unit, stored.host_id, "expired", approval.expires_at - approval.created_at)
        return True

    def _escalate(self, unit: Unit, due: DueEscalation) -> bool:
        """Log that more people may answer; they may even without the event. False: it was logged already."""
        approval = due.approval
        if not self._approval_service.mark_escalated(unit, approval.id, due.number):
            return False
        stored = store.lock(unit.connection, approval.tool_call_id)
        escalated = ApprovalEscalated(approval_id=approval.id, tool_call_id=approval.tool_call_id, to=due.to)
        self._log.append(unit, call_events.draft(stored.subject, escalated))
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
        statistics.record_answer(unit, stored.host_id, state, (found.decided_at or found.created_at) - found.created_at)
        if verdict is Verdict.APPROVE:
            store.transition(unit.connection, stored.identity, CallState.WAITING, CallState.QUEUED)
            queue.enqueue(unit, self._wakeups, stored.identity.tool_call_id, stored.subject, stored.host_id)
        else:
            comment = f" They said: {found.comment}" if found.comment else ""
            reason = f"A person rejected this call.{comment}"
            deny(unit, self._log, store.lock(unit.connection, found.tool_call_id), DenialCode.REJECTED, reason)

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
        return self._approval_service.grants.issue(unit, wish, asked, found, by=by, reason=found.comment or "")


def waiting_for_deferred(stored: CallRecord) -> Waiting:
    """The outcome of a call whose approval is deferred: a worker reads its files first, or tries it in a copy."""
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
    """The outcome of a call that waits for approval."""
    return Waiting(
        identity=identity,
        approval_id=approval.id,
        reason=str(approval.shown.get("reason", "")),
        rules=approval.rules,
        who=describe_approvers(approval),
        expires_at=approval.expires_at,
    )
