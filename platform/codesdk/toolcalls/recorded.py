"""The calls of an installation as questions that can be asked again, straight from its database."""

from __future__ import annotations

from collections.abc import Iterator

from codesdk.domain.calls import ToolCall
from codesdk.domain.ids import ToolCallId
from codesdk.domain.subjects import Subject
from codesdk.policy.trial import Trial, Where, Who
from codesdk.storage.database import Database
from codesdk.toolcalls import store

DAY_S = 86_400.0


def trials(database: Database, days: float) -> Iterator[Trial]:
    """What was asked for in the last `days`, oldest first.

    Raises:
        StorageUnavailable: the database does not answer.
    """
    with database.read() as connection:
        for call, subject in store.recorded(connection, days * DAY_S):
            yield _trial(call, subject)


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
        session=Where(id=subject.session_id, tenant=subject.tenant_id, runtime=subject.runtime, labels=subject.labels),
    )
