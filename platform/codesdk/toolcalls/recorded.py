"""The calls of an installation as questions that can be asked again, straight from its database."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from sqlalchemy import Float, bindparam

from codesdk.domain.calls import ToolCall
from codesdk.domain.ids import TenantId, ToolCallId
from codesdk.domain.subjects import Subject
from codesdk.policy.trial import Trial, Where, Who
from codesdk.storage.database import Database, database_now
from codesdk.storage.schema import tool_calls
from codesdk.toolcalls import store
from codesdk.toolcalls.stored import StoredCall

DAY_S = 86_400.0
PAGE = 500
"""Calls of one read: no read of the database is a long one."""
_RECORDED = (
    # A retry is no question of its own. Ids are sorted by time, and the table has them in that order.
    store.CALLS.where(
        tool_calls.c.attempt == 1,
        tool_calls.c.requested_at > database_now() - bindparam("seconds", type_=Float),
        tool_calls.c.id > bindparam("after"),
    )
    .order_by(tool_calls.c.id)
    .limit(PAGE)
)
_OF_TENANT = _RECORDED.where(tool_calls.c.tenant_id == bindparam("tenant"))
"""The database looks for them: one tenant's question is not to read what everybody called."""


def trials(database: Database, days: float, tenant: TenantId | None = None, most: int | None = None) -> Iterator[Trial]:
    """What was asked for in the last `days`, oldest first: by everybody, or in one tenant; at most so many.

    Raises:
        StorageUnavailable: the database does not answer.
    """
    for stored in islice(_recorded(database, days, tenant), most):
        yield _trial(stored.call, stored.subject)


def _recorded(database: Database, days: float, tenant: TenantId | None) -> Iterator[StoredCall]:
    given: dict[str, Any] = {"seconds": days * DAY_S, "after": ""}
    query = _RECORDED
    if tenant is not None:
        query, given = _OF_TENANT, {**given, "tenant": tenant}
    while True:
        with database.read() as connection:
            page = list(store.found(connection, query, given))
        yield from page
        if len(page) < PAGE:
            return
        given["after"] = page[-1].identity.tool_call_id


def trial(database: Database, call: str) -> Trial | None:
    """One call's question; None where there is no such call.

    Raises:
        StorageUnavailable: the database does not answer.
    """
    with database.read() as connection:
        found = store.find(connection, ToolCallId(call))
    return _trial(found.call, found.subject) if found else None


def _trial(call: ToolCall, subject: Subject) -> Trial:
    return Trial(
        tool=call.name,
        input=call.input,
        principal=Who(id=subject.principal_id, roles=subject.roles),
        mode=subject.permission_mode,
        session=Where(
            id=subject.session_id,
            tenant=subject.tenant_id,
            runtime=subject.runtime,
            labels=subject.labels,
            policy_hash=subject.policy_hash,
        ),
    )
