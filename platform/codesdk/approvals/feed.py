"""News of a tenant's approvals: what happened to which, numbered so that a reader can come back for the rest.

Each is written in the transaction of what it tells. The number is the tenant's own, given at the end of the transaction
under a lock that is held until the commit: so nothing is seen before it is committed, and nothing comes later under an
earlier number.
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
"""Pieces of news that are read at once: each comes with its whole approval, whose input may be long."""


class FeedKind(StrEnum):
    """What happened."""

    REQUESTED = "requested"
    VOTED = "voted"
    """Somebody answered; where that decided it, `decided` follows."""
    ESCALATED = "escalated"
    DECIDED = "decided"
    EXPIRED = "expired"
    """Told within about a second of the moment; it holds from its moment on."""
    CANCELLED = "cancelled"
    VOIDED = "voided"
    """What would have run was no longer what was approved."""


class FeedEntry(FrozenModel):
    """One thing that happened to one approval."""

    number: int
    kind: FeedKind
    at: float
    """Seconds since the epoch, on the database's clock."""
    by: PrincipalId | None = None
    """Who voted."""
    approval: Approval
    """As it stands when this is read, which may be later than what is told."""


def publish(unit: Unit, about: ApprovalRef, kind: FeedKind, by: PrincipalId | None = None) -> None:
    """Note it, with the unit that does it. `by`: who voted."""
    unit.at_end(f"news:{about.tenant}", lambda connection: store.add_feed_entry(connection, about, kind.value, by))


class ApprovalFeed:
    """The feeds of one database, for readers."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def place(self, tenant: TenantId) -> FeedPosition:
        """Where the tenant's stands: a reader that begins there misses nothing of what comes."""
        with self._database.read() as connection:
            return store.feed_position(connection, tenant)

    def latest_numbers(self, tenants: Collection[TenantId]) -> dict[TenantId, int]:
        """The newest number of each, in one look."""
        with self._database.read() as connection:
            return store.latest_numbers(connection, tenants)

    def page(self, tenant: TenantId, after: int, limit: int = PAGE_SIZE) -> list[FeedEntry]:
        """What comes after that number, in order; what was of sessions that were removed since is not there."""
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
