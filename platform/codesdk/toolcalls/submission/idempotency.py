"""A call that comes again, by the id that its client gave it or by what it says: it is answered, not made a second time.

Both are looked for in the unit that would record it. Two processes cannot both miss an id, since the session has a unique
index of them: the later one's unit is undone, run again and finds the row. They cannot both miss an equal call, since they
look for it when they hold the tenant's row, as whoever reserves does (docs/adr/0041).
"""

from __future__ import annotations

from functools import cache
from typing import Any

from sqlalchemy import Connection, Select, bindparam

from codesdk.domain.calls import CallState, ToolCall
from codesdk.domain.ids import SessionId
from codesdk.domain.subjects import Subject
from codesdk.errors import Fault
from codesdk.storage.expressions import in_list
from codesdk.storage.schema import tool_calls
from codesdk.toolcalls.records import store
from codesdk.toolcalls.records.call_record import CallRecord

_BY_CLIENT_ID = store.CALLS.where(
    tool_calls.c.session_id == bindparam("session"), tool_calls.c.runtime_tool_call_id == bindparam("given")
)


class CallIdTaken(Fault):
    """Its client has given the id to another call of the session. Nothing was recorded."""

    code = "CALL_ID_TAKEN"
    status = 409

    def __init__(self, first: CallRecord, call: ToolCall) -> None:
        of = "that tool with another input" if first.call.name == call.name else first.call.name
        super().__init__(
            f"The session has a call with the id {call.identity.runtime_tool_call_id}: one of {of}.",
            advice="Give each call an id of its own; only a repetition, with the same input, has the id of its call.",
            details={"tool_call_id": first.identity.tool_call_id, "tool": first.call.name},
        )


def find_by_client_id(connection: Connection, call: ToolCall, subject: Subject) -> CallRecord | None:
    """The session's call that has the id of this one, however it stands; None: there is none, or this one has no id.

    Raises:
        CallIdTaken: it is another call: of another tool, or with another input.
    """
    given = call.identity.runtime_tool_call_id
    if given is None:
        return None
    first = next(store.select_calls(connection, _BY_CLIENT_ID, {"session": subject.session_id, "given": given}), None)
    if first is None:
        return None
    if (first.call.name, first.identity.input_hash) != (call.name, call.identity.input_hash):
        raise CallIdTaken(first, call)
    return first


def find_in_flight(connection: Connection, call: ToolCall, subject: Subject) -> CallRecord | None:
    """The session's equal call that is queued or runs: a client that lost its answer sends it again."""
    sought = (subject.session_id, call.name, call.identity.input_hash)
    return find_duplicate(connection, *sought, CallState.QUEUED, CallState.RUNNING)


def find_duplicate(
    connection: Connection, session: SessionId, name: str, input_hash: str, *states: CallState
) -> CallRecord | None:
    """The session's newest call of the same tool and input in one of these states that nobody has cancelled."""
    sought = {"session": session, "name": name, "input_hash": input_hash}
    return next(store.select_calls(connection, _duplicate_query(states), sought), None)


@cache
def _duplicate_query(states: tuple[CallState, ...]) -> Select[Any]:
    return (
        store.CALLS.where(
            tool_calls.c.session_id == bindparam("session"),
            tool_calls.c.name == bindparam("name"),
            tool_calls.c.input_hash == bindparam("input_hash"),
            in_list(tool_calls.c.state, states),
            tool_calls.c.cancel_requested.is_(False),
        )
        .order_by(tool_calls.c.requested_at.desc(), tool_calls.c.id.desc())
        .limit(1)
    )
