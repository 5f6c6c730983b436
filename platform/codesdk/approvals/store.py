"""SQL for approvals, their votes and their feed. Each decision is one conditional write, on the database's clock."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from sqlalchemy import (
    Alias,
    BigInteger,
    ColumnElement,
    Connection,
    FromClause,
    Row,
    Select,
    String,
    Table,
    and_,
    bindparam,
    case,
    delete,
    exists,
    func,
    not_,
    or_,
    select,
    text,
    true,
    update,
)
from sqlalchemy import insert as insert_into

from codesdk.approvals.approval import Approval, ApprovalState, DemandProgress, DueEscalation, Verdict, Vote
from codesdk.domain.decisions import ApprovalSpec, GrantOffer
from codesdk.domain.ids import ApprovalId, PrincipalId, SessionId, TenantId, ToolCallId
from codesdk.storage.database import database_now
from codesdk.storage.schema import (
    approval_demands,
    approval_feeds,
    approval_news,
    approval_votes,
    approvals,
    group_members,
    principals,
    sessions,
    tenants,
)
from codesdk.tenancy.access import PERMISSIONS, Action

PAGE_CHARACTERS = 4 * 1024**2
"""Size of a page: it ends with the approval that exceeds this. One may hold an input of 4 MiB, and a page 200 approvals."""
FIRST_EPOCH = "0"
"""Epoch of a feed that was never restored; a restored copy gets a new one (`archive.store.renew_epochs`)."""
_NEXT_NUMBER = text(
    "INSERT INTO approval_feeds (tenant_id, epoch, last) VALUES (:tenant, :epoch, 1)"
    " ON CONFLICT (tenant_id) DO UPDATE SET last = approval_feeds.last + 1 RETURNING last"
)
_FEED_PAGE = (
    select(approval_news)
    .where(
        approval_news.c.tenant_id == bindparam("tenant", type_=String),
        approval_news.c.number > bindparam("after", type_=BigInteger),
    )
    .order_by(approval_news.c.number)
    .limit(bindparam("most"))
)


class ApprovalRef(NamedTuple):
    """An approval with its tenant and session."""

    approval: ApprovalId
    tenant: TenantId
    session: SessionId


class FeedRow(NamedTuple):
    """One stored feed entry."""

    number: int
    approval: ApprovalId
    kind: str
    by: PrincipalId | None
    at: float


class FeedPosition(NamedTuple):
    """Position in a tenant's feed."""

    epoch: str
    last: int


# -- who may vote, and when an approval is decided ---------------------------------------------------------------------

_IS_OPEN = (approvals.c.state == ApprovalState.PENDING.value) & (approvals.c.expires_at > database_now())
"""The approval can still be voted on."""

_PERSON = "person"


def _is_eligible(voter: Table | Alias) -> ColumnElement[bool]:
    """`voter`, a row of principals, may vote on the joined row of approvals now."""
    wanted = approval_demands.alias("wanted")
    ours = wanted.c.approval_id == approvals.c.id
    return and_(
        _is_active_approver(voter),
        voter.c.tenant_id == approvals.c.tenant_id,
        _is_independent(voter),
        or_(not_(exists().where(ours)), exists().where(ours, _satisfies(voter, wanted))),
    )


def _demands_met() -> ColumnElement[bool]:
    """Every demand of the approval has its votes."""
    wanted = approval_demands.alias("short")
    return not_(exists().where(wanted.c.approval_id == approvals.c.id, wanted.c.quorum > _count_approvals(wanted)))


def _quorum_reachable() -> ColumnElement[bool]:
    """The tenant has enough eligible approvers, now or after escalation."""
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


def _count_approvals(demand: FromClause) -> ColumnElement[int]:
    """Number of approving votes for `demand`, a row of approval_demands, by voters who are still eligible.

    A voter who has left the group or was disabled since does not count.
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
        return exists().where(ours).correlate(voter, demand)  # both may belong to an outer statement

    return and_(
        or_(demand.c.quorum == 1, voter.c.kind == _PERSON),
        or_(
            demand.c.group_name.is_(None),
            member(demand.c.group_name),
            and_(true() if ever else demand.c.escalate_at <= database_now(), member(demand.c.escalate_to)),
        ),
    )


# -- approvals ---------------------------------------------------------------------------------------------------------

# The current state: an expiry takes effect without a sweep. Statements are built once (see toolcalls.store).
_STATE = case(
    ((approvals.c.state == "pending") & (approvals.c.expires_at <= database_now()), "expired"),
    else_=approvals.c.state,
).label("state_now")
_APPROVALS = select(approvals, _STATE)
_SIZE = func.length(approvals.c.shown)
_FIND = _APPROVALS.where(approvals.c.id == bindparam("approval"))
_LOCK = select(approvals.c.id).where(approvals.c.id == bindparam("approval")).with_for_update()
_OF_CALL = (
    _APPROVALS.where(approvals.c.tool_call_id == bindparam("call"), approvals.c.attempt == bindparam("attempt"))
    .order_by(approvals.c.created_at.desc())
    .limit(1)
)
_INSERT = insert_into(approvals).values(
    state="pending", created_at=database_now(), expires_at=database_now() + bindparam("timeout_s")
)
_DEMANDS = (
    select(approval_demands, _count_approvals(approval_demands).label("approved"))
    .where(approval_demands.c.approval_id.in_(bindparam("asked", expanding=True)))
    .order_by(approval_demands.c.approval_id, approval_demands.c.number)
)
_VOTES = (
    select(approval_votes, principals.c.name)
    .join(principals, principals.c.id == approval_votes.c.principal_id)
    .where(approval_votes.c.approval_id.in_(bindparam("asked", expanding=True)))
    .order_by(approval_votes.c.voted_at, approval_votes.c.principal_id)
)
_IS_THEIRS = (
    _IS_OPEN,
    _is_eligible(principals),
    ~select(approval_votes.c.principal_id)
    .where(approval_votes.c.approval_id == approvals.c.id, approval_votes.c.principal_id == principals.c.id)
    .exists(),
)
"""The principal may vote on the approval, and has not yet."""
_MAY_ANSWER = select(approvals.c.id).where(
    approvals.c.id == bindparam("approval"), principals.c.id == bindparam("by"), *_IS_THEIRS
)
_ELIGIBLE_VOTERS = (
    select(principals.c.name)
    .select_from(approvals.join(principals, principals.c.tenant_id == approvals.c.tenant_id))
    .where(approvals.c.id == bindparam("approval"), *_IS_THEIRS)
    .order_by(principals.c.name, principals.c.id)
    .limit(bindparam("most"))
)
_ADD_VOTE = (
    insert_into(approval_votes)
    .from_select(
        ["approval_id", "principal_id", "verdict", "comment", "voted_at"],
        select(
            approvals.c.id,
            principals.c.id,
            bindparam("verdict"),
            bindparam("comment"),
            database_now(),
        ).where(
            approvals.c.id == bindparam("approval"),
            approvals.c.digest == bindparam("digest"),
            principals.c.id == bindparam("by"),
            *_IS_THEIRS,
        ),
    )
    .execution_options(preserve_rowcount=True)
)  # of an INSERT it is -1 on PostgreSQL otherwise
_DECIDE = (
    update(approvals)
    .where(approvals.c.id == bindparam("approval"), _IS_OPEN)
    .values(
        state=bindparam("after"), decided_at=database_now(), decided_by=bindparam("by"), comment=bindparam("comment")
    )
)
_DECIDE_IF_MET = _DECIDE.where(_demands_met())


def insert(
    connection: Connection,
    approval: ApprovalId,
    spec: ApprovalSpec,
    *,
    call: ToolCallId,
    attempt: int,
    session: SessionId,
    tenant: TenantId,
    digest: str,
    shown: dict[str, Any],
    rules: Mapping[str, str],
    grant: GrantOffer | None,
) -> Approval:
    """Add a pending approval. Its times count from now, on the database's clock."""
    row = {
        "id": approval,
        "tool_call_id": call,
        "attempt": attempt,
        "session_id": session,
        "tenant_id": tenant,
        "digest": digest,
        "shown": json.dumps(shown, ensure_ascii=False),
        "rules": json.dumps(dict(rules)),
        "not_requester": spec.not_requester,
        "grant_offer": grant.model_dump_json() if grant else None,
        "timeout_s": float(spec.timeout_s),
    }
    connection.execute(_INSERT, row)
    for number, demand in enumerate(spec.demands):
        later = demand.escalation
        # Relative to created_at: the database's clock goes on within a transaction.
        asked_at = select(approvals.c.created_at).where(approvals.c.id == approval).scalar_subquery()
        connection.execute(
            insert_into(approval_demands).values(
                approval_id=approval,
                number=number,
                group_name=demand.group,
                quorum=demand.quorum,
                escalate_at=asked_at + later.after_s if later else None,
                escalate_to=later.to if later else None,
            )
        )
    found = find(connection, approval)
    assert found is not None  # noqa: S101 (it was inserted in this transaction)
    return found


def find(connection: Connection, approval: str, tenant: str | None = None) -> Approval | None:
    """The approval in its current state; None if it is another tenant's."""
    query = _FIND if tenant is None else _FIND.where(approvals.c.tenant_id == tenant)
    return next(iter(_read(connection, connection.execute(query, {"approval": approval}).all())), None)


def find_all(connection: Connection, wanted: Sequence[ApprovalId]) -> list[Approval]:
    """The approvals with these ids, in no order."""
    if not wanted:
        return []
    return _read(connection, connection.execute(_APPROVALS.where(approvals.c.id.in_(set(wanted)))).all())


def lock(connection: Connection, approval: str) -> None:
    """Lock the approval until the commit: concurrent votes must see each other to reach a quorum."""
    connection.execute(_LOCK, {"approval": approval})


def of_call(connection: Connection, call: ToolCallId, attempt: int) -> Approval | None:
    """The newest approval of an attempt."""
    rows = connection.execute(_OF_CALL, {"call": call, "attempt": attempt}).all()
    return next(iter(_read(connection, rows)), None)


def listing(
    connection: Connection,
    tenant: str,
    state: ApprovalState | None,
    session: str | None,
    *,
    rule: str | None = None,
    before: str | None = None,
) -> list[Approval]:
    """The tenant's approvals, newest first: at most 200, and about `PAGE_CHARACTERS`. `before`: last id of the previous page."""
    query = _APPROVALS.where(approvals.c.tenant_id == tenant)
    if state is not None:
        query = query.where(_STATE.in_([state.value]))
    if session is not None:
        query = query.where(approvals.c.session_id == session)
    if rule is not None:
        query = query.where(approvals.c.rules.contains(json.dumps(rule), autoescape=True))
    if before is not None:
        last = select(approvals.c.created_at).where(approvals.c.id == before, approvals.c.tenant_id == tenant)
        at = last.scalar_subquery()
        query = query.where(
            or_(approvals.c.created_at < at, (approvals.c.created_at == at) & (approvals.c.id < before))
        )
    newest = query.order_by(approvals.c.created_at.desc(), approvals.c.id.desc())
    return _page(connection, newest.limit(200))


def overdue(connection: Connection, limit: int) -> list[Approval]:
    """Pending approvals past their expiry, as many as fit on a page."""
    query = _APPROVALS.where(  # runs every second: listing the tenants makes it use their index
        approvals.c.tenant_id.in_(select(tenants.c.id)),
        approvals.c.state == "pending",
        approvals.c.expires_at <= database_now(),
    )
    return _page(connection, query.order_by(approvals.c.expires_at).limit(limit))


def can_be_met(connection: Connection, approval: str) -> bool:
    """Whether the tenant has enough eligible approvers."""
    query = select(approvals.c.id).where(approvals.c.id == approval, _quorum_reachable())
    return connection.execute(query).first() is not None


def remove(connection: Connection, approval: str) -> None:
    """Remove an approval that was inserted in this transaction."""
    connection.execute(delete(approval_demands).where(approval_demands.c.approval_id == approval))
    connection.execute(delete(approvals).where(approvals.c.id == approval))


def due_escalations(connection: Connection, limit: int) -> list[DueEscalation]:
    """Demands of pending approvals whose escalation is due and not announced."""
    query = select(approval_demands).join(approvals, approvals.c.id == approval_demands.c.approval_id)
    rows = connection.execute(
        query.where(
            _IS_OPEN,
            approval_demands.c.escalated.is_(False),
            approval_demands.c.escalate_at <= database_now(),
        )
        .order_by(approval_demands.c.escalate_at)
        .limit(limit)
    ).all()
    asked = {row.approval_id: find(connection, row.approval_id) for row in rows}
    return [
        DueEscalation(found, row.number, row.escalate_to)
        for row in rows
        if (found := asked[row.approval_id]) is not None
    ]


def mark_escalated(connection: Connection, approval: str, number: int) -> bool:
    """Mark an escalation as announced, once, while the approval is open."""
    still = select(approvals.c.id).where(approvals.c.id == approval, _IS_OPEN).exists()
    ours = (approval_demands.c.approval_id == approval) & (approval_demands.c.number == number)
    changed = connection.execute(
        update(approval_demands).where(ours, approval_demands.c.escalated.is_(False), still).values(escalated=True)
    )
    return changed.rowcount == 1


def add_vote(
    connection: Connection, approval: str, digest: str, verdict: Verdict, *, by: PrincipalId, comment: str | None
) -> bool:
    """Add a vote. False: late, another digest, not the voter's first, or the voter is not eligible."""
    vote = {"approval": approval, "digest": digest, "verdict": verdict.value, "by": by, "comment": comment}
    return connection.execute(_ADD_VOTE, vote).rowcount == 1


def can_vote(connection: Connection, approval: str, by: PrincipalId) -> bool:
    """Whether `add_vote` would count a vote with the right digest."""
    return connection.execute(_MAY_ANSWER, {"approval": approval, "by": by}).first() is not None


def eligible_voters(connection: Connection, approval: str, limit: int) -> list[str]:
    """Names of the principals whose vote would be counted now, in order."""
    return list(connection.execute(_ELIGIBLE_VOTERS, {"approval": approval, "most": limit}).scalars())


def decide(connection: Connection, approval: str, verdict: Verdict, *, by: PrincipalId, comment: str | None) -> bool:
    """Decide after a vote: a rejection at once, an approval if every demand is met. False: still open."""
    rejects = verdict is Verdict.REJECT
    after = ApprovalState.REJECTED if rejects else ApprovalState.APPROVED
    step = {"approval": approval, "after": after.value, "by": by, "comment": comment}
    return connection.execute(_DECIDE if rejects else _DECIDE_IF_MET, step).rowcount == 1


def transition(connection: Connection, approval: str, before: ApprovalState, after: ApprovalState) -> bool:
    """Change the state from `before` to `after`. False: it was another."""
    changed = connection.execute(
        update(approvals).where(approvals.c.id == approval, approvals.c.state == before.value).values(state=after.value)
    )
    return changed.rowcount == 1


def cancel_of_session(connection: Connection, session: str) -> list[ApprovalId]:
    """Cancel the session's pending and unused approvals; returns their ids."""
    waiting = approvals.c.state.in_(["pending", "approved"])
    found = connection.execute(select(approvals.c.id).where(approvals.c.session_id == session, waiting)).scalars().all()
    if found:
        cancel = update(approvals).where(approvals.c.session_id == session, waiting)
        connection.execute(cancel.values(state="cancelled"))
    return [ApprovalId(id_) for id_ in found]


def about(connection: Connection, approval: ApprovalId) -> ApprovalRef:
    """The approval with its tenant and session."""
    query = select(approvals.c.tenant_id, approvals.c.session_id).where(approvals.c.id == approval)
    row = connection.execute(query).one()
    return ApprovalRef(approval, TenantId(row.tenant_id), SessionId(row.session_id))


# -- the feed ----------------------------------------------------------------------------------------------------------


def add_feed_entry(connection: Connection, about: ApprovalRef, kind: str, by: str | None) -> None:
    """Add the tenant's next feed entry. The counter's row stays locked until the commit, so numbers follow commit order."""
    number = connection.execute(_NEXT_NUMBER, {"tenant": about.tenant, "epoch": FIRST_EPOCH}).scalar_one()
    connection.execute(
        approval_news.insert().values(
            tenant_id=about.tenant,
            number=number,
            approval_id=about.approval,
            session_id=about.session,
            kind=kind,
            by=by,
            at=database_now(),
        )
    )


def feed_page(connection: Connection, tenant: TenantId, after: int, limit: int) -> list[FeedRow]:
    """Feed entries after a number, in order: at most `limit`, up to the one with whose approval they exceed a page's size."""
    asked = {"tenant": tenant, "after": after, "most": limit}
    rows = [_feed_row(row) for row in connection.execute(_FEED_PAGE, asked)]
    sizes = _sizes(connection, [row.approval for row in rows])
    # An approval whose session was removed has no size, and is left out later.
    before = accumulate((sizes.get(row.approval, 0) for row in rows), initial=0)
    return [row for row, size in zip(rows, before, strict=False) if size <= PAGE_CHARACTERS]


def feed_position(connection: Connection, tenant: TenantId) -> FeedPosition:
    """Current position of the tenant's feed."""
    query = select(approval_feeds.c.epoch, approval_feeds.c.last).where(approval_feeds.c.tenant_id == tenant)
    row = connection.execute(query).one_or_none()
    return FeedPosition(row.epoch, row.last) if row else FeedPosition(FIRST_EPOCH, 0)


def latest_numbers(connection: Connection, tenants: Collection[TenantId]) -> dict[TenantId, int]:
    """Newest number of each tenant's feed; tenants without a feed are left out."""
    query = select(approval_feeds.c.tenant_id, approval_feeds.c.last).where(approval_feeds.c.tenant_id.in_(tenants))
    return {TenantId(row.tenant_id): row.last for row in connection.execute(query)}


def _feed_row(row: Row[Any]) -> FeedRow:
    by = PrincipalId(row.by) if row.by else None
    return FeedRow(row.number, ApprovalId(row.approval_id), row.kind, by, row.at)


def _sizes(connection: Connection, wanted: Sequence[ApprovalId]) -> dict[ApprovalId, int]:
    """The size of each of these approvals, in characters of what approvers see; without those that are gone."""
    query = select(approvals.c.id, _SIZE).where(approvals.c.id.in_(set(wanted)))
    return {ApprovalId(found): size for found, size in connection.execute(query)} if wanted else {}


def _page(connection: Connection, query: Select[Any]) -> list[Approval]:
    """The first approvals that a query on `_APPROVALS` finds, up to the one with which they exceed `PAGE_CHARACTERS`."""
    sizes = connection.execute(query.with_only_columns(approvals.c.id, _SIZE)).all()
    before = accumulate((size for _, size in sizes), initial=0)
    wanted = [ApprovalId(found) for (found, _), size in zip(sizes, before, strict=False) if size <= PAGE_CHARACTERS]
    there = {each.id: each for each in find_all(connection, wanted)}
    return [there[each] for each in wanted if each in there]


def _read(connection: Connection, rows: Sequence[Row[Any]]) -> list[Approval]:
    if not rows:
        return []
    asked = {"asked": [row.id for row in rows]}
    demands: dict[str, list[DemandProgress]] = {}
    for row in connection.execute(_DEMANDS, asked):
        demands.setdefault(row.approval_id, []).append(
            DemandProgress(
                group=row.group_name,
                quorum=row.quorum,
                approved=row.approved,
                escalate_at=row.escalate_at,
                escalate_to=row.escalate_to,
            )
        )
    votes: dict[str, list[Vote]] = {}
    for row in connection.execute(_VOTES, asked):
        vote = Vote(
            by=PrincipalId(row.principal_id),
            name=row.name,
            verdict=Verdict(row.verdict),
            comment=row.comment,
            at=row.voted_at,
        )
        votes.setdefault(row.approval_id, []).append(vote)
    return [_approval(row, demands.get(row.id, []), votes.get(row.id, [])) for row in rows]


def _approval(row: Row[Any], demands: list[DemandProgress], votes: list[Vote]) -> Approval:
    rules = json.loads(row.rules)
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
        rules=tuple(rules),
        rule_hashes=rules if isinstance(rules, dict) else {},
        not_requester=row.not_requester,
        demands=tuple(demands),
        votes=tuple(votes),
        grant=GrantOffer.model_validate_json(row.grant_offer) if row.grant_offer else None,
    )
