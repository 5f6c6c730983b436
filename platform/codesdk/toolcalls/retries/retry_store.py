"""The statement by which a call's row becomes that of its next attempt."""

from __future__ import annotations

from sqlalchemy import Connection, update

from codesdk.domain.calls import CallState, IllegalTransition, ToolCall
from codesdk.domain.decisions import Evaluation
from codesdk.domain.ids import GrantId
from codesdk.storage.database import database_now
from codesdk.storage.schema import tool_calls
from codesdk.toolcalls.records import store

_ATTEMPT_COLUMNS = (
    *("digest", "bound_files", "preview_tries", "preview", "generation", "behaviour_hash", "classification", "life"),
    *("obligations", "result", "started_at", "finished_at"),
)
"""Columns that say something of one attempt alone, and nothing where it has not begun."""


def requeue(
    connection: Connection,
    call: ToolCall,
    *,
    schema_hash: str,
    serial: bool,
    sources: tuple[Evaluation, ...],
    grant: GrantId | None,
) -> None:
    """Let the row of a call, whose attempt before this one was completed just now, wait for its next run.

    Raises:
        IllegalTransition: that attempt has not ended, or is not the one before; nothing is written.
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
                "sources": store.sources_text(sources),
                "grant_id": grant,
            }
        )
    )
    if connection.execute(statement).rowcount != 1:
        raise IllegalTransition(f"Call {call.identity.tool_call_id} has no attempt that another could follow.")
