"""How a call ends: denied, or completed with a result. Each end is one unit of work."""

from __future__ import annotations

import json

from codesdk.approvals import grant_store
from codesdk.artifacts import Artifact
from codesdk.domain.calls import CallState, DenialCode
from codesdk.domain.tools import ToolResult
from codesdk.eventlog.log import Draft, Log
from codesdk.storage.writer import Unit
from codesdk.toolcalls import doubt, history, lost_store, refusals, store, tallies, turns
from codesdk.toolcalls.stored import Claimed, Denied, StoredCall

NEVER_RAN = frozenset(
    {
        "BOUND_NOT_MET",
        "FILES_CHANGED",
        "NOT_BEGUN",
        "SECRET_MISSING",
        "SECRET_NOT_GRANTED",
        "TOOL_CHANGED",
        "TOO_MANY_PROCESSES",
    }
)
"""Codes of results that say so. Only those belong here that no tool gives once it has begun with anything.

Of a server's calls `Claimed.ran` says it too, since `Elsewhere.sent` was not called; these hold where a later worker ends one.
"""


def deny(
    unit: Unit, log: Log, stored: StoredCall, code: DenialCode, reason: str, *, rules: tuple[str, ...] = ()
) -> Denied:
    """Write the terminal denial of a call that did not start.

    Raises:
        IllegalTransition: it had started or ended.
    """
    result = ToolResult(text=reason, is_error=True, code=code.value)
    store.move(unit.connection, stored.identity, stored.state, CallState.DENIED, result=result.model_dump_json())
    if stored.state is CallState.QUEUED:
        turns.leave(unit, stored.subject.session_id, stored.tenant_id)
    refusals.count(unit, stored.tenant_id, code)
    log.append(unit, history.denied(stored.call, stored.subject, stored.sources, code, reason))
    return Denied(identity=stored.identity, code=code, message=reason, rules=rules)


def complete(
    unit: Unit,
    log: Log,
    claimed: Claimed,
    result: ToolResult,
    *,
    result_ref: Artifact | None,
    last_output: tuple[Draft, ...],
    duration_ms: float,
    in_doubt: bool = False,
) -> None:
    """Write the rest of the output and the end of a call that ran.

    `in_doubt`: nobody knows whether it took effect, so the same call is asked about when it comes again.

    Raises:
        IllegalTransition: it is not this worker's any more (a newer one took it over); nothing is written.
    """
    stored = claimed.stored
    lasted = store.move(
        unit.connection,
        stored.identity,
        CallState.RUNNING,
        CallState.COMPLETED,
        held_by=claimed.generation,
        result=result.model_dump_json(),
        doubtful=in_doubt or claimed.in_doubt or _stays_in_doubt(unit, claimed, result),
    )
    turns.leave(unit, stored.subject.session_id, stored.tenant_id)
    if not claimed.ran and stored.grant_id is not None:
        grant_store.release(unit.connection, stored.grant_id)
    for output in last_output:
        log.append(unit, output)
    if result.stdout or result.stderr:
        log.append(unit, history.output_completed(stored.call, stored.subject, result))
    elif result.is_error and (came := _came(unit, stored, last_output)):
        log.append(unit, history.output_cut_off(stored.call, stored.subject, came))
    log.append(
        unit,
        history.completed(
            stored.call,
            stored.subject,
            stored.sources,
            result,
            environment=claimed.environment,
            sandbox=claimed.sandbox,
            result_ref=result_ref,
            duration_ms=duration_ms,
        ),
    )
    if lasted is not None:
        tallies.ended(unit, stored.host_id, result, lasted)


def _came(unit: Unit, stored: StoredCall, last_output: tuple[Draft, ...]) -> dict[str, int]:
    """How far the output of an attempt had come, of each stream that had any."""
    logged = lost_store.output_of(unit.connection, stored.subject.session_id, stored.identity)
    came: dict[str, int] = {}
    for payload in (*logged, *(draft.payload for draft in last_output)):
        stream, text = payload["stream"], payload["delta"]
        # U+FFFD stands for one byte at least; written out it has three.
        least = len(text.encode()) - 2 * text.count("\ufffd")
        came[stream] = max(came.get(stream, 0), payload["offset"] + least)
    return came


def _stays_in_doubt(unit: Unit, claimed: Claimed, result: ToolResult) -> bool:
    """A call that did not run after all says nothing of what became of the same call before it."""
    if claimed.ran and result.code not in NEVER_RAN:
        return False
    return doubt.lost_twin(unit.connection, claimed.stored.call, claimed.stored.subject) is not None


def is_small(result: ToolResult) -> bool:
    """Whether the result can stand in its event whole."""
    return len(json.dumps(result.structured or result.text)) <= history.PREVIEW_BYTES
