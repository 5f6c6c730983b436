"""Recorded calls as policy inputs, for replaying them against other rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice

from codesdk.domain.calls import ToolCall
from codesdk.domain.ids import TenantId, ToolCallId
from codesdk.domain.subjects import Subject
from codesdk.policy.evaluation.query import PolicyQuery, QueryPrincipal, QuerySession
from codesdk.storage.database import Database
from codesdk.toolcalls.records import store
from codesdk.toolcalls.records.call_record import CallRecord

DAY_S = 86_400.0
PAGE = 20
"""Calls in one read: keeps each read transaction short, and in memory what it reads, since an input may have 4 MiB."""
_AFTER_EVERY_ID = "zzzz"
"""Sorts after every id in every collation: ids begin with `call_`."""


def inputs_since(database: Database, days: float) -> Iterator[PolicyQuery]:
    """All tenants' recorded calls of the last `days`, oldest first.

    Raises:
        StorageUnavailable: the database does not answer.
    """
    return _pages(database, partial(store.list_recorded, seconds=days * DAY_S), "")


def newest_inputs(database: Database, days: float, tenant: TenantId, most: int) -> Iterator[PolicyQuery]:
    """One tenant's recorded calls of the last `days`, newest first, at most `most`.

    Raises:
        StorageUnavailable: the database does not answer.
    """
    read = partial(store.list_newest, seconds=days * DAY_S, tenant=tenant)
    return islice(_pages(database, read, _AFTER_EVERY_ID), most)


def count_inputs(database: Database, days: float, tenant: TenantId) -> int:
    """How many calls `newest_inputs` would return without a bound."""
    with database.read() as connection:
        return store.count_recorded(connection, days * DAY_S, tenant)


def _pages(database: Database, read: Callable[..., list[CallRecord]], start: str) -> Iterator[PolicyQuery]:
    while True:
        with database.read() as connection:
            page = read(connection, start=start, page=PAGE)
        yield from (_policy_input(stored.call, stored.subject) for stored in page)
        if len(page) < PAGE:
            return
        start = page[-1].identity.tool_call_id


def input_of_call(database: Database, call: str) -> PolicyQuery | None:
    """One recorded call as policy input; None if there is no such call.

    Raises:
        StorageUnavailable: the database does not answer.
    """
    with database.read() as connection:
        found = store.find(connection, ToolCallId(call))
    return _policy_input(found.call, found.subject) if found else None


def _policy_input(call: ToolCall, subject: Subject) -> PolicyQuery:
    return PolicyQuery(
        tool=call.name,
        input=call.input,
        principal=QueryPrincipal(id=subject.principal_id, roles=subject.roles),
        mode=subject.permission_mode,
        session=QuerySession(
            id=subject.session_id,
            tenant=subject.tenant_id,
            runtime=subject.runtime,
            labels=subject.labels,
            policy_hash=subject.policy_hash,
        ),
    )
