"""How a call ends: denied, or completed with a result. Each end is one unit of work."""

from __future__ import annotations

import json

from codesdk.approvals.grants import store as grant_store
from codesdk.artifacts import Artifact
from codesdk.domain.calls import CallState, DenialCode
from codesdk.domain.tool_results import ToolResult
from codesdk.eventlog.log import EventDraft, EventLog
from codesdk.storage.writer import Unit
from codesdk.toolcalls.queue import store as queue
from codesdk.toolcalls.records import call_events, store
from codesdk.toolcalls.records.call_record import CallRecord, ClaimedCall, Denied
from codesdk.toolcalls.retries import store as retry_store
from codesdk.toolcalls.statistics import store as statistics

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
"""Result codes of calls that didn't run. Only codes that no tool returns once it has started.

For calls of MCP servers `ClaimedCall.ran` is False too, as long as `SourceRequest.sent` wasn't called.
"""


def deny(
    unit: Unit, log: EventLog, stored: CallRecord, code: DenialCode, reason: str, *, rules: tuple[str, ...] = ()
) -> Denied:
    """Write the terminal denial of a call that did not start.

    Raises:
        IllegalTransition: it had started or ended.
    """
    result = ToolResult(text=reason, is_error=True, code=code.value).model_dump_json()
    store.transition(unit.connection, stored.identity, stored.state, CallState.DENIED, result=result)
    if stored.state is CallState.QUEUED:
        queue.release(unit, stored.subject.session_id, stored.tenant_id)
    statistics.count_denial(unit, stored.tenant_id, code)
    denied = call_events.denied(stored.call, stored.subject, stored.sources, code, reason)
    log.append(unit, denied, row_bytes=len(result.encode()))
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

    `is_indeterminate_outcome`: whether it took effect is unknown, so an equal call will need approval.

    Raises:
        IllegalTransition: a newer worker took the call over; nothing is written.
    """
    stored = claimed.stored
    kept = result.model_dump_json()
    durations = store.transition(
        unit.connection,
        stored.identity,
        CallState.RUNNING,
        CallState.COMPLETED,
        owned_by=claimed.generation,
        result=kept,
        doubtful=is_indeterminate_outcome
        or claimed.is_indeterminate_outcome
        or _stays_indeterminate(unit, claimed, result),
    )
    queue.release(unit, stored.subject.session_id, stored.tenant_id)
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
        row_bytes=len(kept.encode()),
    )
    if durations is not None:
        statistics.record_end(unit, stored.host_id, result, durations)


def _output_bytes(unit: Unit, stored: CallRecord, last_output: tuple[EventDraft, ...]) -> dict[str, int]:
    """Bytes of each stream that the attempt is known to have printed."""
    logged = retry_store.output_payloads(unit.connection, stored.subject.session_id, stored.identity)
    received: dict[str, int] = {}
    for payload in (*logged, *(draft.payload for draft in last_output)):
        stream, text = payload["stream"], payload["delta"]
        # U+FFFD replaces at least one byte, and takes three itself.
        least = len(text.encode()) - 2 * text.count("\ufffd")
        received[stream] = max(received.get(stream, 0), payload["offset"] + least)
    return received


def _stays_indeterminate(unit: Unit, claimed: ClaimedCall, result: ToolResult) -> bool:
    """Whether a lost equal call stays indeterminate: the end of a call that didn't run tells nothing about it."""
    if claimed.ran and result.code not in NOT_RUN_CODES:
        return False
    stored = claimed.stored
    return store.describe_lost_equal(unit.connection, stored.subject.session_id, stored.call) is not None


def fits_in_event(result: ToolResult) -> bool:
    """Whether the event can hold the whole result."""
    return len(json.dumps(result.structured or result.text)) <= call_events.INLINE_RESULT_BYTES
