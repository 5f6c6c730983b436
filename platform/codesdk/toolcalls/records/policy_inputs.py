"""The calls of an installation as questions that can be asked again, straight from its database."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from sqlalchemy import Float, bindparam, func, select

from codesdk.domain.calls import ToolCall
from codesdk.domain.ids import TenantId, ToolCallId
from codesdk.domain.subjects import Subject
from codesdk.policy.evaluation.query import PolicyQuery, QueryPrincipal, QuerySession
from codesdk.storage.database import Database, database_now
from codesdk.storage.schema import tool_calls
from codesdk.toolcalls.records import store

DAY_S = 86_400.0
PAGE = 500
"""Calls of one read: no read of the database is a long one."""
_AFTER_EVERY_ID = "zzzz"
"""Behind every id, in every collation of a database: they begin with a kind, `call_`."""
# One row, one question, however many attempts it took.
_SINCE = (tool_calls.c.requested_at > database_now() - bindparam("seconds", type_=Float),)
# The database looks for a tenant's: one tenant's question is not to read what everybody called.
_IN_TENANT = tool_calls.c.tenant_id == bindparam("tenant")
# Ids are sorted by time, and the table has them in that order.
_RECORDED = store.CALLS.where(*_SINCE, tool_calls.c.id > bindparam("from")).order_by(tool_calls.c.id).limit(PAGE)
_NEWEST_OF_TENANT = (
    store.CALLS.where(*_SINCE, _IN_TENANT, tool_calls.c.id < bindparam("from"))
    .order_by(tool_calls.c.id.desc())
    .limit(PAGE)
)
_COUNT_OF_TENANT = select(func.count()).select_from(tool_calls).where(*_SINCE, _IN_TENANT)


def inputs_since(database: Database, days: float) -> Iterator[PolicyQuery]:
    """What everybody asked for in the last `days`, oldest first.

    Raises:
        StorageUnavailable: the database does not answer.
    """
    return _pages(database, _RECORDED, {"seconds": days * DAY_S, "from": ""})


def newest_inputs(database: Database, days: float, tenant: TenantId, most: int) -> Iterator[PolicyQuery]:
    """The newest of what was asked for in one tenant in the last `days`, newest first; at most so many.

    Raises:
        StorageUnavailable: the database does not answer.
    """
    given = {"seconds": days * DAY_S, "from": _AFTER_EVERY_ID, "tenant": tenant}
    return islice(_pages(database, _NEWEST_OF_TENANT, given), most)


def count_inputs(database: Database, days: float, tenant: TenantId) -> int:
    """How many calls `newest_inputs` would give, were there no bound."""
    given = {"seconds": days * DAY_S, "tenant": tenant}
    with database.read() as connection:
        return connection.execute(_COUNT_OF_TENANT, given).scalar_one()


def _pages(database: Database, query: Any, given: dict[str, Any]) -> Iterator[PolicyQuery]:
    given = dict(given)
    while True:
        with database.read() as connection:
            page = list(store.select_calls(connection, query, given))
        yield from (_policy_input(stored.call, stored.subject) for stored in page)
        if len(page) < PAGE:
            return
        given["from"] = page[-1].identity.tool_call_id


def input_of_call(database: Database, call: str) -> PolicyQuery | None:
    """One call's question; None where there is no such call.

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
