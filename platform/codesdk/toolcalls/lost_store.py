"""The statements of calls that ran where nobody can ask any more."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Connection, select, update

from codesdk.domain.calls import CallState
from codesdk.domain.ids import SessionId, ToolCallId
from codesdk.storage.schema import events, tool_calls


def adopt(connection: Connection, call: ToolCallId, generation: int) -> None:
    """That running call belongs to this generation from now on."""
    connection.execute(
        update(tool_calls)
        .where(tool_calls.c.id == call, tool_calls.c.state == CallState.RUNNING.value)
        .values(generation=generation)
    )


def start_of(connection: Connection, session: SessionId, call: ToolCallId) -> dict[str, Any]:
    """What the log says of how a call was started; empty where it does not."""
    query = select(events.c.body).where(events.c.session_id == session, events.c.type == "tool.call.started")
    for body in connection.execute(query.order_by(events.c.seq.desc())).scalars():
        payload: dict[str, Any] = json.loads(body)["payload"]
        if payload.get("tool_call_id") == call:
            return payload
    return {}
