"""Who may answer an approval and when it is decided, as SQL: judged with the vote, on the database's clock."""

from __future__ import annotations

from sqlalchemy import Alias, ColumnElement, FromClause, Table, and_, exists, func, not_, or_, select, true

from codesdk.approvals.approval import ApprovalState, Verdict
from codesdk.storage.database import database_now
from codesdk.storage.schema import approval_demands, approval_votes, approvals, group_members, principals, sessions
from codesdk.tenancy.access import PERMISSIONS, Action

IS_OPEN = (approvals.c.state == ApprovalState.PENDING.value) & (approvals.c.expires_at > database_now())
"""It can still be answered."""

_PERSON = "person"


def is_eligible(voter: Table | Alias) -> ColumnElement[bool]:
    """`voter`, a row of principals, may answer the row of approvals beside it as things are now."""
    wanted = approval_demands.alias("wanted")
    ours = wanted.c.approval_id == approvals.c.id
    return and_(
        _is_active_approver(voter),
        voter.c.tenant_id == approvals.c.tenant_id,
        _is_independent(voter),
        or_(not_(exists().where(ours)), exists().where(ours, _satisfies(voter, wanted))),
    )


def demands_met() -> ColumnElement[bool]:
    """No demand of the row of approvals is short of votes."""
    wanted = approval_demands.alias("short")
    return not_(exists().where(wanted.c.approval_id == approvals.c.id, wanted.c.quorum > approved(wanted)))


def can_be_met() -> ColumnElement[bool]:
    """There are as many as the row of approvals takes, now or once it has escalated."""
    wanted, voter = approval_demands.alias("wanted"), principals.alias("anybody")
    may = and_(_is_active_approver(voter), voter.c.tenant_id == approvals.c.tenant_id, _is_independent(voter))
    there = (
        select(func.count())
        .select_from(voter)
        .where(may, _satisfies(voter, wanted, ever=True))
        .correlate(wanted, approvals)
        .scalar_subquery()
    )
    short = exists().where(wanted.c.approval_id == approvals.c.id, wanted.c.quorum > there)
    return and_(exists().where(may), not_(short))


def approved(demand: FromClause) -> ColumnElement[int]:
    """How many have said yes to `demand`, a row of approval_demands, and still may.

    Whoever was taken out of a group or disabled since their vote does not count.
    """
    voter = principals.alias("counted")
    return (
        select(func.count())
        .select_from(approval_votes.join(voter, voter.c.id == approval_votes.c.principal_id))
        .where(
            approval_votes.c.approval_id == demand.c.approval_id,
            approval_votes.c.verdict == Verdict.APPROVE.value,
            _is_active_approver(voter),
            _satisfies(voter, demand),
        )
        .correlate(demand)
        .scalar_subquery()
    )


def _is_active_approver(voter: FromClause) -> ColumnElement[bool]:
    roles = sorted(PERMISSIONS[Action.APPROVALS_DECIDE].roles)
    return and_(voter.c.disabled_at.is_(None), or_(*(voter.c.roles.like(f'%"{role.value}"%') for role in roles)))


def _is_independent(voter: FromClause) -> ColumnElement[bool]:
    requester = (
        select(sessions.c.principal_id)
        .where(sessions.c.id == approvals.c.session_id)
        .correlate(approvals)
        .scalar_subquery()
    )
    return or_(not_(approvals.c.not_requester), and_(voter.c.kind == _PERSON, voter.c.id != requester))


def _satisfies(voter: FromClause, demand: FromClause, *, ever: bool = False) -> ColumnElement[bool]:
    def member(name: ColumnElement[str]) -> ColumnElement[bool]:
        of = group_members.alias()
        ours = and_(of.c.tenant_id == voter.c.tenant_id, of.c.name == name, of.c.principal_id == voter.c.id)
        return exists().where(ours).correlate(voter, demand)  # both may stand further out than the next statement

    return and_(
        or_(demand.c.quorum == 1, voter.c.kind == _PERSON),
        or_(
            demand.c.group_name.is_(None),
            member(demand.c.group_name),
            and_(true() if ever else demand.c.escalate_at <= database_now(), member(demand.c.escalate_to)),
        ),
    )
