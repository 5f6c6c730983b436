"""Where approvals are asked for, voted on and consumed."""

from __future__ import annotations

from typing import Any

from codesdk.approvals import store
from codesdk.approvals.approval import Approval, ApprovalConflict, ApprovalState, ApprovalUnknown, Verdict
from codesdk.domain.calls import CallIdentity
from codesdk.domain.decisions import ApprovalSpec
from codesdk.domain.ids import ApprovalId, Ids, Kind, PrincipalId, TenantId, ToolCallId
from codesdk.domain.subjects import Subject
from codesdk.storage.database import Database
from codesdk.storage.writer import Unit

_STATE_OF = {Verdict.APPROVE: ApprovalState.APPROVED, Verdict.REJECT: ApprovalState.REJECTED}


class Desk:
    """The approvals of one database."""

    def __init__(self, database: Database, ids: Ids) -> None:
        self._database = database
        self._ids = ids

    def request(
        self,
        unit: Unit,
        identity: CallIdentity,
        subject: Subject,
        spec: ApprovalSpec,
        *,
        digest: str,
        shown: dict[str, Any],
    ) -> Approval:
        """Ask, in the transaction that records the `ask`."""
        return store.insert(
            unit.connection,
            ApprovalId(self._ids.new(Kind.APPROVAL)),
            call=identity.tool_call_id,
            attempt=identity.attempt,
            session=subject.session_id,
            tenant=subject.tenant_id,
            digest=digest,
            shown=shown,
            timeout_s=spec.timeout_s,
        )

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
        """One vote. Returns the approval as it then is, and whether this vote decided it (False: it had, before).

        Raises:
            ApprovalUnknown: not there, or another tenant's.
            ApprovalConflict: expired, decided otherwise, or the digest is of something else.
        """
        decided = store.find(unit.connection, approval, tenant) is not None and store.decide(
            unit.connection, approval, digest, _STATE_OF[verdict], by=by, comment=comment
        )
        found = store.find(unit.connection, approval, tenant)
        if found is None:
            raise ApprovalUnknown(f"There is no approval {approval}.")
        if decided or self._says_the_same(found, verdict, digest, by):
            return found, decided
        if found.digest != digest:
            raise ApprovalConflict(
                "This approval is about something else: the digest does not match.",
                advice="Read the approval again and vote on what it shows now.",
                details={"state": found.state.value, "digest": found.digest},
            )
        raise ApprovalConflict(
            f"This approval is already {found.state.value}; your vote changed nothing.",
            details={"state": found.state.value, "decided_by": found.decided_by, "decided_at": found.decided_at},
        )

    def consume(self, unit: Unit, approval: ApprovalId) -> bool:
        """Use it up for the one run that it allows. False: it was not approved, or somebody was first."""
        return store.move(unit.connection, approval, ApprovalState.APPROVED, ApprovalState.CONSUMED)

    def end(self, unit: Unit, approval: ApprovalId, before: ApprovalState, after: ApprovalState) -> bool:
        """Expire, cancel or void it, if it still is `before`."""
        return store.move(unit.connection, approval, before, after)

    def of_call(self, unit: Unit, identity: CallIdentity) -> Approval | None:
        """The newest approval of this attempt."""
        return store.of_call(unit.connection, identity.tool_call_id, identity.attempt)

    def asked(self, call: ToolCallId, attempt: int) -> Approval | None:
        """The newest approval of this attempt, for a reader."""
        with self._database.read() as connection:
            return store.of_call(connection, call, attempt)

    def overdue(self, limit: int = 100) -> list[Approval]:
        """Approvals that nobody answered in time, for the sweep that tells the callers."""
        with self._database.read() as connection:
            return store.expired(connection, limit)

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

    def listing(self, tenant: TenantId, state: ApprovalState | None, session: str | None) -> list[Approval]:
        """The tenant's approvals, newest first."""
        with self._database.read() as connection:
            return store.listing(connection, tenant, state, session)

    @staticmethod
    def _says_the_same(found: Approval, verdict: Verdict, digest: str, by: PrincipalId) -> bool:
        used = found.state is ApprovalState.CONSUMED and verdict is Verdict.APPROVE
        same = found.state is _STATE_OF[verdict] or used
        return same and found.decided_by == by and found.digest == digest
