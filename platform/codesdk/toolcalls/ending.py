"""How a call ends: denied, or completed with a result. Each end is one unit of work."""

from __future__ import annotations

import json

from codesdk.approvals.grants import store as grant_store
from codesdk.artifacts import Artifact
from codesdk.domain.calls import CallState, DenialCode
from codesdk.domain.tool_results import ToolResult
from codesdk.eventlog.log import EventDraft, EventLog
from codesdk.storage.writer import Unit
from codesdk.toolcalls.decision import indeterminate
from codesdk.toolcalls.queue import fair_queue
from codesdk.toolcalls.records import call_events, store
from codesdk.toolcalls.records.call_record import CallRecord, ClaimedCall, Denied
from codesdk.toolcalls.retries import lost_call_store
from codesdk.toolcalls.statistics import call_statistics, denial_counts

NOT_RUN_CODES = frozenset(
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

Of a server's calls `ClaimedCall.ran` says it too, since `Elsewhere.sent` was not called; these hold where a later worker ends one.
"""


def deny(
    unit: Unit, log: EventLog, stored: CallRecord, code: DenialCode, reason: str, *, rules: tuple[str, ...] = ()
) -> Denied:
    """Write the terminal denial of a call that did not start.

    Raises:
        IllegalTransition: it had started or ended.
    """
    result = ToolResult(text=reason, is_error=True, code=code.value)
    store.transition(unit.connection, stored.identity, stored.state, CallState.DENIED, result=result.model_dump_json())
    if stored.state is CallState.QUEUED:
        fair_queue.release(unit, stored.subject.session_id, stored.tenant_id)
    denial_counts.count_denial(unit, stored.tenant_id, code)
    log.append(unit, call_events.denied(stored.call, stored.subject, stored.sources, code, reason))
    return Denied(identity=stored.identity, code=code, message=reason, rules=rules)


def complete(
    unit: Unit,
    log: EventLog,
    claimed: ClaimedCall,
    result: ToolResult,
    *,
    result_ref: Artifact | None,
    last_output: tuple[EventDraft, ...],
    duration_ms: float,
    is_indeterminate_outcome: bool = False,
) -> None:
    """Write the rest of the output and the end of a call that ran.

    `is_indeterminate_outcome`: nobody knows whether it took effect, so the same call is asked about when it comes again.

    Raises:
        IllegalTransition: it is not this worker's any more (a newer one took it over); nothing is written.
    """
    stored = claimed.stored
    durations = store.transition(
        unit.connection,
        stored.identity,
        CallState.RUNNING,
        CallState.COMPLETED,
        owned_by=claimed.generation,
        result=result.model_dump_json(),
        doubtful=is_indeterminate_outcome
        or claimed.is_indeterminate_outcome
        or _stays_indeterminate(unit, claimed, result),
    )
    fair_queue.release(unit, stored.subject.session_id, stored.tenant_id)
    if not claimed.ran and stored.grant_id is not None:
        grant_store.release(unit.connection, stored.grant_id)
    for output in last_output:
        log.append(unit, output)
    if result.stdout or result.stderr:
        log.append(unit, call_events.output_completed(stored.call, stored.subject, result))
    elif result.is_error and (received := _output_bytes(unit, stored, last_output)):
        log.append(unit, call_events.output_cut_off(stored.call, stored.subject, received))
    log.append(
        unit,
        call_events.completed(
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
    if durations is not None:
        call_statistics.record_end(unit, stored.host_id, result, durations)


def _output_bytes(unit: Unit, stored: CallRecord, last_output: tuple[EventDraft, ...]) -> dict[str, int]:
    """How far the output of an attempt had come, of each stream that had any."""
    logged = lost_call_store.output_payloads(unit.connection, stored.subject.session_id, stored.identity)
    received: dict[str, int] = {}
    for payload in (*logged, *(draft.payload for draft in last_output)):
        stream, text = payload["stream"], payload["delta"]
        # U+FFFD stands for one byte at least; written out it has three.
        least = len(text.encode()) - 2 * text.count("\ufffd")
        received[stream] = max(received.get(stream, 0), payload["offset"] + least)
    return received


def _stays_indeterminate(unit: Unit, claimed: ClaimedCall, result: ToolResult) -> bool:
    """A call that did not run after all says nothing of what became of the same call before it."""
    if claimed.ran and result.code not in NOT_RUN_CODES:
        return False
    return (
        indeterminate.describe_indeterminate_duplicates(unit.connection, claimed.stored.call, claimed.stored.subject)
        is not None
    )


def fits_in_event(result: ToolResult) -> bool:
    """Whether the result can stand in its event whole."""
    return len(json.dumps(result.structured or result.text)) <= call_events.INLINE_RESULT_BYTES
