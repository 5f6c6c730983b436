"""Requests approvals, counts votes and consumes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from codesdk.approvals import store
from codesdk.approvals.approval import (
    Approval,
    ApprovalConflict,
    ApprovalState,
    ApprovalUnknown,
    DueEscalation,
    NotAnApprover,
    Verdict,
    describe_approvers,
)
from codesdk.approvals.feed import ApprovalFeed, FeedKind, publish
from codesdk.approvals.grants.service import GrantService
from codesdk.approvals.store import ApprovalRef
from codesdk.domain.calls import CallIdentity
from codesdk.domain.decisions import ApprovalSpec, GrantOffer
from codesdk.domain.ids import ApprovalId, IdKind, Ids, PrincipalId, TenantId, ToolCallId
from codesdk.domain.subjects import Subject
from codesdk.storage.database import Database
from codesdk.storage.writer import Unit


class ApprovalService:
    """The approvals of one database."""

    def __init__(self, database: Database, ids: Ids) -> None:
        self._database = database
        self._ids = ids
        self.grants = GrantService(database, ids)
        self.feeds = ApprovalFeed(database)

    def request(
        self,
        unit: Unit,
        identity: CallIdentity,
        subject: Subject,
        spec: ApprovalSpec,
        *,
        digest: str,
        shown: dict[str, Any],
        rules: Mapping[str, str] | None = None,
        grant: GrantOffer | None = None,
        approval: ApprovalId | None = None,
    ) -> Approval | None:
        """Request an approval, in the transaction that records the `ask`.

        `rules`: id and hash of each rule that asks; `grant`: the offer. None: the tenant has too few eligible approvers,
        now or after escalation, so no approval is created.
        """
        asked = store.insert(
            unit.connection,
            approval or ApprovalId(self._ids.new(IdKind.APPROVAL)),
            spec,
            call=identity.tool_call_id,
            attempt=identity.attempt,
            session=subject.session_id,
            tenant=subject.tenant_id,
            digest=digest,
            shown=shown,
            rules=rules or {},
            grant=grant,
        )
        # An approver can still be added while an unrestricted approval waits; named groups must exist already.
        named = bool(spec.demands) or spec.not_requester
        if named and not store.can_be_met(unit.connection, asked.id):
            store.remove(unit.connection, asked.id)
            return None
        publish(unit, _ref(asked), FeedKind.REQUESTED)
        return asked

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
    ) -> tuple[Approval, bool]:
        """Count a vote. Returns the approval after it, and whether this call counted it (False: it is a repeat).

        A rejection decides at once, an approval once every demand is met.

        Raises:
            ApprovalUnknown: not there, or another tenant's.
            ApprovalConflict: expired, decided, a different vote before, or another digest.
            NotAnApprover: not eligible.
        """
        if store.find(unit.connection, approval, tenant) is None:
            raise ApprovalUnknown(f"There is no approval {approval}.")
        store.lock(unit.connection, approval)
        counted = store.add_vote(unit.connection, approval, digest, verdict, by=by, comment=comment)
        if counted:
            store.decide(unit.connection, approval, verdict, by=by, comment=comment)
        found = store.find(unit.connection, approval, tenant)
        assert found is not None  # noqa: S101 (found above; nothing removes a pending one)
        if counted and found.state is not ApprovalState.EXPIRED:
            publish(unit, _ref(found), FeedKind.VOTED, by)
            if found.state is not ApprovalState.PENDING:
                publish(unit, _ref(found), FeedKind.DECIDED, by)
            return found, True
        if found.digest == digest and any(each.by == by and each.verdict is verdict for each in found.votes):
            return found, False
        raise _refusal(found, digest, by)

    def consume(self, unit: Unit, approval: ApprovalId) -> bool:
        """Consume the approval for one run. False: not approved, or consumed already."""
        return store.transition(unit.connection, approval, ApprovalState.APPROVED, ApprovalState.CONSUMED)

    def end(self, unit: Unit, approval: ApprovalId, before: ApprovalState, after: ApprovalState) -> bool:
        """Move a `before` approval to expired, cancelled or voided. False: its state was another."""
        ended = store.transition(unit.connection, approval, before, after)
        if ended:
            publish(unit, store.about(unit.connection, approval), _END_KINDS[after])
        return ended

    def of_call(self, unit: Unit, identity: CallIdentity) -> Approval | None:
        """The newest approval of this attempt."""
        return store.of_call(unit.connection, identity.tool_call_id, identity.attempt)

    def latest_of_call(self, call: ToolCallId, attempt: int) -> Approval | None:
        """The newest approval of this attempt, in a read transaction of its own."""
        with self._database.read() as connection:
            return store.of_call(connection, call, attempt)

    def overdue(self, limit: int = 100) -> list[Approval]:
        """Pending approvals past their expiry, for the sweep that ends their calls."""
        with self._database.read() as connection:
            return store.overdue(connection, limit)

    def due_escalations(self, limit: int = 100) -> list[DueEscalation]:
        """Escalations that are due and not announced, for the sweep that announces them."""
        with self._database.read() as connection:
            return store.due_escalations(connection, limit)

    def mark_escalated(self, unit: Unit, approval: ApprovalId, number: int) -> bool:
        """Mark an escalation as announced. False: it was already, or the approval is no longer pending."""
        told = store.mark_escalated(unit.connection, approval, number)
        if told:
            publish(unit, store.about(unit.connection, approval), FeedKind.ESCALATED)
        return told

    def find(self, tenant: TenantId, approval: str) -> Approval:
        """One approval.

        Raises:
            ApprovalUnknown: not there, or another tenant's.
        """
        with self._database.read() as connection:
            found = store.find(connection, approval, tenant)
        if found is None:
            raise ApprovalUnknown(f"There is no approval {approval}.")
        return found

    def can_vote(self, approval: ApprovalId, by: PrincipalId) -> bool:
        """Whether a vote would be counted now; the vote itself checks again."""
        with self._database.read() as connection:
            return store.can_vote(connection, approval, by)

    def eligible_voters(self, approval: ApprovalId, limit: int) -> list[str]:
        """Names of those who may still vote, in order."""
        with self._database.read() as connection:
            return store.eligible_voters(connection, approval, limit)

    def listing(
        self,
        tenant: TenantId,
        state: ApprovalState | None,
        session: str | None,
        rule: str | None = None,
        before: str | None = None,
    ) -> list[Approval]:
        """The tenant's approvals, newest first, at most 200.

        `rule`: only approvals of this rule; `before`: last id of the previous page.
        """
        with self._database.read() as connection:
            return store.listing(connection, tenant, state, session, rule=rule, before=before)


_END_KINDS = {
    ApprovalState.EXPIRED: FeedKind.EXPIRED,
    ApprovalState.CANCELLED: FeedKind.CANCELLED,
    ApprovalState.VOIDED: FeedKind.VOIDED,
}


def _ref(approval: Approval) -> ApprovalRef:
    return ApprovalRef(approval.id, approval.tenant_id, approval.session_id)


def _refusal(found: Approval, digest: str, by: PrincipalId) -> ApprovalConflict | NotAnApprover:
    """Why a vote was not counted."""
    if found.digest != digest:
        return ApprovalConflict(
            "The digest does not match this approval.",
            advice="Read the approval again and vote with its current digest.",
            details={"state": found.state.value, "digest": found.digest},
        )
    outcome: dict[str, object] = {
        "state": found.state.value,
        "decided_by": found.decided_by,
        "decided_at": found.decided_at,
    }
    if found.state is not ApprovalState.PENDING:
        return ApprovalConflict(
            f"This approval is already {found.state.value}; your vote changed nothing.", details=outcome
        )
    if any(vote.by == by for vote in found.votes):
        return ApprovalConflict(
            "You have already voted differently; your first vote stands.",
            advice="To stop the call, cancel it.",
            details=outcome,
        )
    return NotAnApprover(
        f"You cannot vote on this approval: it takes {describe_approvers(found)}.",
        details={"demands": [d.group for d in found.demands]},
    )
