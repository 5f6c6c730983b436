"""The statements of the news of approvals."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, Connection, Row, String, bindparam, select, text

from codesdk.domain.ids import ApprovalId, PrincipalId, SessionId, TenantId
from codesdk.storage.database import database_now
from codesdk.storage.schema import approval_feeds, approval_news

FIRST_EPOCH = "0"
"""Of a feed that was never restored from a backup; a copy gets one of its own (`archive.store.renew_epochs`)."""
_NEXT = text(
    "INSERT INTO approval_feeds (tenant_id, epoch, last) VALUES (:tenant, :epoch, 1)"
    " ON CONFLICT (tenant_id) DO UPDATE SET last = approval_feeds.last + 1 RETURNING last"
)
_PAGE = (
    select(approval_news)
    .where(
        approval_news.c.tenant_id == bindparam("tenant", type_=String),
        approval_news.c.number > bindparam("after", type_=BigInteger),
    )
    .order_by(approval_news.c.number)
    .limit(bindparam("most"))
)


class ApprovalRef(NamedTuple):
    """Which approval, and whose."""

    approval: ApprovalId
    tenant: TenantId
    session: SessionId


class FeedRow(NamedTuple):
    """What is kept of one piece of news."""

    number: int
    approval: ApprovalId
    kind: str
    by: PrincipalId | None
    at: float


class FeedPosition(NamedTuple):
    """Where a tenant's feed stands."""

    epoch: str
    last: int


def add(connection: Connection, about: ApprovalRef, kind: str, by: str | None) -> None:
    """The tenant's next one. Its counter's row is held until the commit: numbers come in the order of commits."""
    number = connection.execute(_NEXT, {"tenant": about.tenant, "epoch": FIRST_EPOCH}).scalar_one()
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


def page(connection: Connection, tenant: TenantId, after: int, limit: int) -> list[FeedRow]:
    """In order."""
    asked = {"tenant": tenant, "after": after, "most": limit}
    return [_row(row) for row in connection.execute(_PAGE, asked)]


def place(connection: Connection, tenant: TenantId) -> FeedPosition:
    """How far it is."""
    query = select(approval_feeds.c.epoch, approval_feeds.c.last).where(approval_feeds.c.tenant_id == tenant)
    row = connection.execute(query).one_or_none()
    return FeedPosition(row.epoch, row.last) if row else FeedPosition(FIRST_EPOCH, 0)


def latest_numbers(connection: Connection, tenants: Collection[TenantId]) -> dict[TenantId, int]:
    """How far each of them is; without those that have none."""
    query = select(approval_feeds.c.tenant_id, approval_feeds.c.last).where(approval_feeds.c.tenant_id.in_(tenants))
    return {TenantId(row.tenant_id): row.last for row in connection.execute(query)}


def _row(row: Row[Any]) -> FeedRow:
    by = PrincipalId(row.by) if row.by else None
    return FeedRow(row.number, ApprovalId(row.approval_id), row.kind, by, row.at)
