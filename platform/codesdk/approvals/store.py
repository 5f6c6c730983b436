"""The approvals' statements. Each decision is one conditional write."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Connection, Row, case, select, update
from sqlalchemy import insert as insert_into

from codesdk.approvals.approval import Approval, ApprovalState
from codesdk.domain.ids import ApprovalId, PrincipalId, SessionId, TenantId, ToolCallId
from codesdk.storage.database import database_now
from codesdk.storage.schema import approvals

# The state as of now: nobody has to sweep for an expiry to hold.
_STATE = case(
    ((approvals.c.state == "pending") & (approvals.c.expires_at <= database_now()), "expired"),
    else_=approvals.c.state,
).label("state_now")


def insert(
    connection: Connection,
    approval: ApprovalId,
    *,
    call: ToolCallId,
    attempt: int,
    session: SessionId,
    tenant: TenantId,
    digest: str,
    shown: dict[str, Any],
    timeout_s: float,
) -> Approval:
    """Add a pending approval that expires `timeout_s` from now on the database's clock."""
    connection.execute(
        insert_into(approvals).values(
            id=approval,
            tool_call_id=call,
            attempt=attempt,
            session_id=session,
            tenant_id=tenant,
            state="pending",
            digest=digest,
            shown=json.dumps(shown, ensure_ascii=False),
            created_at=database_now(),
            expires_at=database_now() + timeout_s,
        )
    )
    found = find(connection, approval)
    assert found is not None  # noqa: S101 (it was inserted in this transaction)
    return found


def find(connection: Connection, approval: str, tenant: str | None = None) -> Approval | None:
    """The approval with its state as of now; None where it is another tenant's."""
    query = select(approvals, _STATE).where(approvals.c.id == approval)
    if tenant is not None:
        query = query.where(approvals.c.tenant_id == tenant)
    row = connection.execute(query).one_or_none()
    return _approval(row) if row else None


def of_call(connection: Connection, call: ToolCallId, attempt: int) -> Approval | None:
    """The newest approval of that attempt."""
    query = (
        select(approvals, _STATE)
        .where(approvals.c.tool_call_id == call, approvals.c.attempt == attempt)
        .order_by(approvals.c.created_at.desc())
        .limit(1)
    )
    row = connection.execute(query).one_or_none()
    return _approval(row) if row else None


def listing(connection: Connection, tenant: str, state: ApprovalState | None, session: str | None) -> list[Approval]:
    """The tenant's approvals, newest first, at most 200."""
    query = select(approvals, _STATE).where(approvals.c.tenant_id == tenant)
    if state is not None:
        query = query.where(_STATE.in_([state.value]))
    if session is not None:
        query = query.where(approvals.c.session_id == session)
    return [_approval(row) for row in connection.execute(query.order_by(approvals.c.created_at.desc()).limit(200))]


def expired(connection: Connection, limit: int) -> list[Approval]:
    """Pending rows whose time has passed."""
    query = select(approvals, _STATE).where(approvals.c.state == "pending", approvals.c.expires_at <= database_now())
    return [_approval(row) for row in connection.execute(query.order_by(approvals.c.expires_at).limit(limit))]


def decide(
    connection: Connection, approval: str, digest: str, state: ApprovalState, *, by: PrincipalId, comment: str | None
) -> bool:
    """Pending, in time and about this digest: then the vote stands. False: nothing was written."""
    changed = connection.execute(
        update(approvals)
        .where(
            approvals.c.id == approval,
            approvals.c.state == "pending",
            approvals.c.digest == digest,
            approvals.c.expires_at > database_now(),
        )
        .values(state=state.value, decided_at=database_now(), decided_by=by, comment=comment)
    )
    return changed.rowcount == 1


def move(connection: Connection, approval: str, before: ApprovalState, after: ApprovalState) -> bool:
    """Change the state if it still is `before`."""
    changed = connection.execute(
        update(approvals).where(approvals.c.id == approval, approvals.c.state == before.value).values(state=after.value)
    )
    return changed.rowcount == 1


def cancel_of_session(connection: Connection, session: str) -> None:
    """Cancel what still waits for a person or for its run in that session."""
    connection.execute(
        update(approvals)
        .where(approvals.c.session_id == session, approvals.c.state.in_(["pending", "approved"]))
        .values(state="cancelled")
    )


def _approval(row: Row[Any]) -> Approval:
    return Approval(
        id=ApprovalId(row.id),
        tool_call_id=ToolCallId(row.tool_call_id),
        attempt=row.attempt,
        session_id=SessionId(row.session_id),
        tenant_id=TenantId(row.tenant_id),
        state=ApprovalState(row.state_now),
        digest=row.digest,
        shown=json.loads(row.shown),
        created_at=row.created_at,
        expires_at=row.expires_at,
        decided_at=row.decided_at,
        decided_by=PrincipalId(row.decided_by) if row.decided_by else None,
        comment=row.comment,
    )
