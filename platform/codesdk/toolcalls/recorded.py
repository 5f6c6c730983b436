"""The calls of an installation as questions that can be asked again, straight from its database."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from sqlalchemy import Float, bindparam

from codesdk.domain.calls import ToolCall
from codesdk.domain.ids import TenantId, ToolCallId
from codesdk.domain.subjects import Subject
from codesdk.policy.trial import Trial, Where, Who
from codesdk.storage.database import Database, database_now
from codesdk.storage.schema import tool_calls
from codesdk.toolcalls import store

DAY_S = 86_400.0
_RECORDED = (
    # A retry is no question of its own.
    store.CALLS.where(
        tool_calls.c.attempt == 1, tool_calls.c.requested_at > database_now() - bindparam("seconds", type_=Float)
    ).order_by(tool_calls.c.requested_at, tool_calls.c.id)
)


def trials(database: Database, days: float, tenant: TenantId | None = None, most: int | None = None) -> Iterator[Trial]:
    """What was asked for in the last `days`, oldest first: by everybody, or in one tenant; at most so many.

    Raises:
        StorageUnavailable: the database does not answer.
    """
    with database.read() as connection:
        found = store.found(connection.execution_options(yield_per=500), _RECORDED, {"seconds": days * DAY_S})
        own = (stored for stored in found if tenant is None or stored.tenant_id == tenant)
        for stored in islice(own, most):
            yield _trial(stored.call, stored.subject)


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
