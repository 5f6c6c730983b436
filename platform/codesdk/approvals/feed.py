"""Feed of a tenant's approvals: numbered entries, so that a reader can resume after the last one it has seen.

An entry is written in the transaction of the change. Its number is assigned at the end of that transaction under a lock
held until the commit, so that numbers become visible in order.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum

from codesdk.approvals import store
from codesdk.approvals.approval import Approval
from codesdk.approvals.store import ApprovalRef, FeedPosition
from codesdk.domain.ids import PrincipalId, TenantId
from codesdk.domain.model import FrozenModel
from codesdk.storage.database import Database
from codesdk.storage.writer import Unit

PAGE_SIZE = 20
"""Entries per page: each includes the whole approval, whose input may be long."""


class FeedKind(StrEnum):
    """Kind of a feed entry."""

    REQUESTED = "requested"
    VOTED = "voted"
    """A vote was counted; if it decided the approval, `decided` follows."""
    ESCALATED = "escalated"
    DECIDED = "decided"
    EXPIRED = "expired"
    """Published about a second after the expiry, which takes effect at once."""
    CANCELLED = "cancelled"
    VOIDED = "voided"
    """What would run is no longer what was approved."""


class FeedEntry(FrozenModel):
    """One change of one approval."""

    number: int
    kind: FeedKind
    at: float
    """Seconds since the epoch, on the database's clock."""
    by: PrincipalId | None = None
    """Who voted."""
    approval: Approval
    """The approval at the time of reading, which may be newer than the entry."""


def publish(unit: Unit, about: ApprovalRef, kind: FeedKind, by: PrincipalId | None = None) -> None:
    """Add a feed entry in the transaction of the change. `by`: the voter."""
    unit.at_end(f"news:{about.tenant}", lambda connection: store.add_feed_entry(connection, about, kind.value, by))


class ApprovalFeed:
    """Reads the feeds of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def place(self, tenant: TenantId) -> FeedPosition:
        """Current position of the tenant's feed; a reader that starts there misses nothing that follows."""
        with self._database.read() as connection:
            return store.feed_position(connection, tenant)

    def latest_numbers(self, tenants: Collection[TenantId]) -> dict[TenantId, int]:
        """The newest number of each tenant's feed, in one query."""
        with self._database.read() as connection:
            return store.latest_numbers(connection, tenants)

    def page(self, tenant: TenantId, after: int, limit: int = PAGE_SIZE) -> list[FeedEntry]:
        """Entries after a number, in order, without those of removed sessions. Fewer than `limit` need not be the last ones."""
        with self._database.read() as connection:
            items = store.feed_page(connection, tenant, after, limit)
            there = {each.id: each for each in store.find_all(connection, [item.approval for item in items])}
        return [
            FeedEntry(
                number=item.number, kind=FeedKind(item.kind), at=item.at, by=item.by, approval=there[item.approval]
            )
            for item in items
            if item.approval in there  # its session may have been removed between the two reads
        ]
