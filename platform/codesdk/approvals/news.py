"""News of a tenant's approvals: what happened to which, numbered so that a reader can come back for the rest.

Each is written in the transaction of what it tells. The number is the tenant's own, given at the end of the transaction
under a lock that is held until the commit: so nothing is seen before it is committed, and nothing comes later under an
earlier number.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum

from codesdk.approvals import news_store, store
from codesdk.approvals.approval import Approval
from codesdk.approvals.news_store import About, Place
from codesdk.domain.decisions import Frozen
from codesdk.domain.ids import PrincipalId, TenantId
from codesdk.storage.database import Database
from codesdk.storage.writer import Unit

PAGE = 20
"""Pieces of news that are read at once: each comes with its whole approval, whose input may be long."""


class NewsKind(StrEnum):
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


class News(Frozen):
    """One thing that happened to one approval."""

    number: int
    kind: NewsKind
    at: float
    """Seconds since the epoch, on the database's clock."""
    by: PrincipalId | None = None
    """Who voted."""
    approval: Approval
    """As it stands when this is read, which may be later than what is told."""


def tell(unit: Unit, about: About, kind: NewsKind, by: PrincipalId | None = None) -> None:
    """Note it, with the unit that does it. `by`: who voted."""
    unit.last(f"news:{about.tenant}", lambda connection: news_store.add(connection, about, kind.value, by))


class Feeds:
    """The feeds of one database, for readers."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def place(self, tenant: TenantId) -> Place:
        """Where the tenant's stands: a reader that begins there misses nothing of what comes."""
        with self._database.read() as connection:
            return news_store.place(connection, tenant)

    def lasts(self, tenants: Collection[TenantId]) -> dict[TenantId, int]:
        """The newest number of each, in one look."""
        with self._database.read() as connection:
            return news_store.lasts(connection, tenants)

    def page(self, tenant: TenantId, after: int, limit: int = PAGE) -> list[News]:
        """What comes after that number, in order; what was of sessions that were removed since is not there."""
        with self._database.read() as connection:
            items = news_store.page(connection, tenant, after, limit)
            there = {each.id: each for each in store.each(connection, [item.approval for item in items])}
        return [
            News(number=item.number, kind=NewsKind(item.kind), at=item.at, by=item.by, approval=there[item.approval])
            for item in items
            if item.approval in there  # its session may have been removed between the two reads
        ]
