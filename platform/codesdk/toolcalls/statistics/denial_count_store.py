"""The statements of how many calls were refused: a row for each tenant and code."""

from __future__ import annotations

from sqlalchemy import Connection, bindparam, func, select, update
from sqlalchemy import insert as insert_into

from codesdk.domain.calls import DenialCode
from codesdk.domain.ids import TenantId
from codesdk.storage.schema import refused_calls

_INCREMENT = (
    update(refused_calls)
    .where(refused_calls.c.tenant_id == bindparam("tenant"), refused_calls.c.code == bindparam("why"))
    .values(calls=refused_calls.c.calls + 1)
)
_INSERT = insert_into(refused_calls).values(tenant_id=bindparam("tenant"), code=bindparam("why"), calls=1)
_TOTALS = select(refused_calls.c.code, func.sum(refused_calls.c.calls)).group_by(refused_calls.c.code)


def add(connection: Connection, tenant: TenantId, code: DenialCode) -> None:
    """One more. Where another process makes the row first, the insert fails, and the writer runs the unit again."""
    key = {"tenant": tenant, "why": code.value}
    if not connection.execute(_INCREMENT, key).rowcount:
        connection.execute(_INSERT, key)


def totals(connection: Connection) -> dict[str, int]:
    """Of all tenants, by code."""
    return {code: int(calls) for code, calls in connection.execute(_TOTALS)}
