"""The statements of calls that ran where nobody can ask any more."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Connection, select, update

from codesdk.domain.calls import CallIdentity, CallState
from codesdk.domain.events import EventType
from codesdk.domain.ids import SessionId, ToolCallId
from codesdk.storage.schema import events, tool_calls


def adopt(connection: Connection, call: ToolCallId, generation: int) -> None:
    """That running call belongs to this generation from now on."""
    connection.execute(
        update(tool_calls)
        .where(tool_calls.c.id == call, tool_calls.c.state == CallState.RUNNING.value)
        .values(generation=generation)
    )


def said_of(connection: Connection, session: SessionId, call: ToolCallId, event_type: str) -> dict[str, Any]:
    """The payload of the newest event of that type about a call; empty where the log has none."""
    query = select(events.c.body).where(events.c.session_id == session, events.c.type == event_type)
    for body in connection.execute(query.order_by(events.c.seq.desc())).scalars():
        payload: dict[str, Any] = json.loads(body)["payload"]
        if payload.get("tool_call_id") == call:
            return payload
    return {}


def output_of(connection: Connection, session: SessionId, identity: CallIdentity) -> list[dict[str, Any]]:
    """The payloads of what an attempt has printed into the log."""
    query = select(events.c.body).where(
        events.c.session_id == session,
        events.c.type == EventType.OUTPUT_DELTA.value,
        # Only these are worth reading; which of them are the call's, the payload says.
        events.c.body.contains(identity.tool_call_id, autoescape=True),
    )
    found: list[dict[str, Any]] = [json.loads(body)["payload"] for body in connection.execute(query).scalars()]
    own = (identity.tool_call_id, identity.attempt)
    return [payload for payload in found if (payload.get("tool_call_id"), payload.get("attempt")) == own]
