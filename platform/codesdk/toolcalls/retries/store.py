"""SQL of attempts: what the log has of them, and the row of the next attempt."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import BigInteger, Connection, bindparam, select, update

from codesdk.domain.calls import CallIdentity, CallState, IllegalTransition, ToolCall
from codesdk.domain.decisions import Evaluation
from codesdk.domain.events import EventType
from codesdk.domain.ids import GrantId, SessionId, ToolCallId
from codesdk.storage.database import database_now
from codesdk.storage.schema import events, tool_calls
from codesdk.toolcalls.records.store import sources_text

_MAX_SEQ = 2**63 - 1
"""After every event."""
_ATTEMPT_COLUMNS = (
    *("digest", "bound_files", "preview_tries", "preview", "generation", "behaviour_hash", "classification", "life"),
    *("obligations", "result", "started_at", "finished_at"),
)
"""Columns of one attempt; the next attempt starts with NULL in each."""


def adopt(connection: Connection, call: ToolCallId, generation: int) -> None:
    """Give a running call to that generation of worker."""
    connection.execute(
        update(tool_calls)
        .where(tool_calls.c.id == call, tool_calls.c.state == CallState.RUNNING.value)
        .values(generation=generation)
    )


def requeue(
    connection: Connection,
    call: ToolCall,
    *,
    schema_hash: str,
    serial: bool,
    sources: tuple[Evaluation, ...],
    grant: GrantId | None,
) -> None:
    """Queue the next attempt of a call whose previous attempt just completed.

    Raises:
        IllegalTransition: the previous attempt has not completed; nothing is written.
    """
    fresh = dict.fromkeys(_ATTEMPT_COLUMNS, None)
    statement = (
        update(tool_calls)
        .where(
            tool_calls.c.id == call.identity.tool_call_id,
            tool_calls.c.attempt == call.identity.attempt - 1,
            tool_calls.c.state == CallState.COMPLETED.value,
        )
        .values(
            {
                **fresh,
                "attempt": call.identity.attempt,
                "state": CallState.QUEUED.value,
                "queued_at": database_now(),
                "held": True,
                "schema_hash": schema_hash,
                "serial": serial,
                "sources": sources_text(sources),
                "grant_id": grant,
            }
        )
    )
    if connection.execute(statement).rowcount != 1:
        raise IllegalTransition(f"Call {call.identity.tool_call_id} has no attempt that another could follow.")


def latest_payload(connection: Connection, session: SessionId, call: ToolCallId, event_type: str) -> dict[str, Any]:
    """The payload of the newest event of that type about a call; empty where the log has none."""
    query = select(events.c.body).where(events.c.session_id == session, events.c.type == event_type)
    for body in connection.execute(query.order_by(events.c.seq.desc())).scalars():
        payload: dict[str, Any] = json.loads(body)["payload"]
        if payload.get("tool_call_id") == call:
            return payload
    return {}


def output_payloads(connection: Connection, session: SessionId, identity: CallIdentity) -> list[dict[str, Any]]:
    """The payloads of the output events of one attempt.

    Reads only what follows the attempt's start: a session's log may be long, and this runs inside a write transaction.
    """
    query = select(events.c.body).where(
        events.c.session_id == session,
        events.c.seq > event_seq(connection, session, identity, EventType.CALL_STARTED),
        events.c.type == EventType.OUTPUT_DELTA.value,
        # Only these are worth reading; which of them are the call's, the payload says.
        events.c.body.contains(identity.tool_call_id, autoescape=True),
    )
    found: list[dict[str, Any]] = [json.loads(body)["payload"] for body in connection.execute(query).scalars()]
    return [payload for payload in found if _is_of_attempt(payload, identity)]


def event_seq(connection: Connection, session: SessionId, identity: CallIdentity, event_type: EventType) -> int:
    """The `seq` of the attempt's newest event of that type; 0 if there is none.

    Backwards from the log's end, one row at a time: so it reads no further than there, on either database.
    """
    newest = (
        select(events.c.seq, events.c.body)
        .where(
            events.c.session_id == session,
            events.c.seq < bindparam("before", type_=BigInteger),
            events.c.type == event_type.value,
            events.c.body.contains(identity.tool_call_id, autoescape=True),
        )
        .order_by(events.c.seq.desc())
        .limit(1)
    )
    before = _MAX_SEQ
    while (row := connection.execute(newest, {"before": before}).one_or_none()) is not None:
        if _is_of_attempt(json.loads(row.body)["payload"], identity):
            return int(row.seq)
        before = row.seq
    return 0


def _is_of_attempt(payload: dict[str, Any], identity: CallIdentity) -> bool:
    return (payload.get("tool_call_id"), payload.get("attempt")) == (identity.tool_call_id, identity.attempt)
