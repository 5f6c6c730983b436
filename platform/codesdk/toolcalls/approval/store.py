"""Statements about calls whose question waits until a worker has looked at the files that they name."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Connection, Float, Integer, Select, bindparam, func, select, update

from codesdk.domain.calls import CallState
from codesdk.domain.ids import ApprovalId, HostId, ToolCallId
from codesdk.sandbox.port import FileFingerprint
from codesdk.storage.database import database_now
from codesdk.storage.schema import hosts, tool_calls
from codesdk.toolcalls.previews.preview import Preview
from codesdk.toolcalls.records import store
from codesdk.toolcalls.records.call_record import CallRecord

BATCH_SIZE = 100
_DEFERRED = tool_calls.c.state == CallState.WAITING.value, tool_calls.c.preparing.is_not(None)
_AGE = tool_calls.c.requested_at, tool_calls.c.id


_MOST = bindparam("most", type_=Integer)


def _fair_order(*which: ColumnElement[bool]) -> Select[Any]:
    """Of each tenant the oldest, then of each the next: nobody's one question waits for another's thousand.

    Within a tenant, its sessions take turns alike: a session whose sandbox hangs must not hide the others' questions.
    """
    place = func.row_number().over(partition_by=tool_calls.c.session_id, order_by=_AGE).label("place")
    here = (
        select(tool_calls.c.id, tool_calls.c.tenant_id, tool_calls.c.requested_at, place)
        .where(*_DEFERRED, tool_calls.c.host_id == bindparam("host"), *which)
        .subquery()
    )
    age = here.c.requested_at, here.c.id
    turn = func.row_number().over(partition_by=here.c.tenant_id, order_by=(here.c.place, *age))
    first = select(here.c.id).order_by(turn, *age).limit(_MOST)
    return store.CALLS.where(tool_calls.c.id.in_(first)).order_by(*_AGE)


_AWAITING_FINGERPRINTS = _fair_order(tool_calls.c.preview_tries.is_(None))
_AWAITING_DRY_RUN = _fair_order(tool_calls.c.preview_tries.is_not(None))
_OVERDUE = store.CALLS.where(
    *_DEFERRED,
    tool_calls.c.host_id.in_(select(hosts.c.id)),  # all: through the index, since this is asked every second
    tool_calls.c.requested_at < database_now() - bindparam("seconds", type_=Float),
)
_OVERDUE = _OVERDUE.order_by(*_AGE).limit(_MOST)


def defer(connection: Connection, call: ToolCallId, approval: ApprovalId, *, preview: bool) -> None:
    """Note that a worker must look at files before anybody is asked, and by which id they will be asked.

    `preview`: it is to try the call as well.
    """
    values = {"preparing": approval, "preview_tries": 0 if preview else None}
    connection.execute(update(tool_calls).where(tool_calls.c.id == call).values(values))


def awaiting_fingerprints(connection: Connection, host: HostId) -> list[CallRecord]:
    """Those of that host whose files are to be looked at, at most `BATCH_SIZE`: of each tenant and session some, oldest first."""
    return list(store.select_calls(connection, _AWAITING_FINGERPRINTS, {"host": host, "most": BATCH_SIZE}))


def awaiting_dry_run(connection: Connection, host: HostId) -> list[CallRecord]:
    """Those of that host that are to be tried, at most `BATCH_SIZE`: of each tenant and session some, oldest first."""
    return list(store.select_calls(connection, _AWAITING_DRY_RUN, {"host": host, "most": BATCH_SIZE}))


def count_dry_run(connection: Connection, call: ToolCallId) -> None:
    """A preview of it is begun."""
    tries = func.coalesce(tool_calls.c.preview_tries, 0) + 1
    connection.execute(update(tool_calls).where(tool_calls.c.id == call).values(preview_tries=tries))


def refund_dry_run(connection: Connection, call: ToolCallId) -> None:
    """The last one was cut short by a worker that stopped, and does not count."""
    begun = tool_calls.c.preview_tries
    one = update(tool_calls).where(tool_calls.c.id == call, begun > 0)
    connection.execute(one.values(preview_tries=begun - 1))


def request_dry_run(connection: Connection, call: ToolCallId) -> None:
    """It is to be tried, since rules say so by now."""
    tries = func.coalesce(tool_calls.c.preview_tries, 0)
    connection.execute(update(tool_calls).where(tool_calls.c.id == call).values(preview_tries=tries))


def find_overdue(connection: Connection, seconds: float) -> list[CallRecord]:
    """Those that no worker has looked at for so long."""
    return list(store.select_calls(connection, _OVERDUE, {"seconds": seconds, "most": BATCH_SIZE}))


def finish(
    connection: Connection, call: ToolCallId, files: tuple[FileFingerprint, ...], preview: Preview | None
) -> None:
    """Keep what the approval binds: the files that the call names, as they are now, and what came of trying it."""
    values = {
        "preparing": None,
        "bound_files": store.FILE_MARKS.dump_json(files).decode(),
        "preview": preview.model_dump_json() if preview else None,
    }
    connection.execute(update(tool_calls).where(tool_calls.c.id == call).values(values))
