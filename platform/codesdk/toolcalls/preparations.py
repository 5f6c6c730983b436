"""Statements about calls whose question waits until a worker has looked at the files that they name."""

from __future__ import annotations

from sqlalchemy import Connection, Float, bindparam, select, update

from codesdk.domain.calls import CallState
from codesdk.domain.ids import ApprovalId, HostId, ToolCallId
from codesdk.sandbox.port import FileMark
from codesdk.storage.database import database_now
from codesdk.storage.schema import hosts, tool_calls
from codesdk.toolcalls import store
from codesdk.toolcalls.stored import StoredCall

AT_ONCE = 100
_PREPARING = (
    store.CALLS.where(tool_calls.c.state == CallState.WAITING.value, tool_calls.c.preparing.is_not(None))
    .order_by(tool_calls.c.requested_at, tool_calls.c.id)
    .limit(AT_ONCE)
)
_HERE = _PREPARING.where(tool_calls.c.host_id == bindparam("host"))
_LEFT = _PREPARING.where(
    tool_calls.c.host_id.in_(select(hosts.c.id)),  # all of them; through the index, since this is asked every second
    tool_calls.c.requested_at < database_now() - bindparam("seconds", type_=Float),
)


def begin(connection: Connection, call: ToolCallId, approval: ApprovalId) -> None:
    """Note that a worker must look at files before anybody is asked, and by which id they will be asked."""
    connection.execute(update(tool_calls).where(tool_calls.c.id == call).values(preparing=approval))


def on_host(connection: Connection, host: HostId) -> list[StoredCall]:
    """Those of that host, oldest first, at most `AT_ONCE`."""
    return list(store.found(connection, _HERE, {"host": host}))


def left_for(connection: Connection, seconds: float) -> list[StoredCall]:
    """Those that no worker has looked at for so long."""
    return list(store.found(connection, _LEFT, {"seconds": seconds}))


def end(connection: Connection, call: ToolCallId, files: tuple[FileMark, ...]) -> None:
    """Keep what the approval binds: the files that the call names, as they are now."""
    values = {"preparing": None, "bound_files": store.MARKS.dump_json(files).decode()}
    connection.execute(update(tool_calls).where(tool_calls.c.id == call).values(values))
