"""Folds the events of tool calls into records, by attempt."""

from __future__ import annotations

from typing import Any

from codesdk.domain.calls import CallState
from codesdk.domain.decisions import Effect, Evaluation, Speaker
from codesdk.domain.events import Event
from codesdk.domain.payloads import (
    CallApproved,
    CallCompleted,
    CallDenied,
    CallPayload,
    CallPolicyEvaluated,
    CallRequested,
    CallStarted,
    Payload,
)
from codesdk.domain.records import ToolCallRecord


class CallRecords:
    """Collects call records from the events of a valid log, in order."""

    def __init__(self) -> None:
        self._records: dict[tuple[str, int], ToolCallRecord] = {}

    def add(self, event: Event, payload: Payload) -> None:
        """Update the call's record from the event."""
        if not isinstance(payload, CallPayload):
            return
        key = (payload.tool_call_id, payload.attempt)
        if isinstance(payload, CallRequested):
            self._records[key] = _new_record(event, payload)
        else:
            before = self._records[key]
            self._records[key] = before.model_copy(update=_update_of(before, event, payload))

    def records(self) -> tuple[ToolCallRecord, ...]:
        """Return every attempt, in the order of requests."""
        return tuple(self._records.values())


def _new_record(event: Event, payload: CallRequested) -> ToolCallRecord:
    return ToolCallRecord(
        tool_call_id=payload.tool_call_id,
        runtime_tool_call_id=payload.runtime_tool_call_id,
        attempt=payload.attempt,
        input_hash=payload.input_hash,
        session_id=event.trace.session_id,
        task_id=event.trace.task_id,
        name=payload.name,
        input=payload.input,
        input_ref=payload.input_ref,
        state=CallState.WAITING,
        requested_at=event.time,
    )


def _update_of(before: ToolCallRecord, event: Event, payload: CallPayload) -> dict[str, Any]:
    match payload:
        case CallPolicyEvaluated():
            voice = Evaluation(source=payload.source, result=payload.result, rule=payload.rule)
            allows = payload.result is Effect.ALLOW and payload.source is not Speaker.RUNTIME
            state = CallState.QUEUED if allows else before.state
            approval = payload.approval_id or before.approval_id
            return {"sources": (*before.sources, voice), "state": state, "approval_id": approval}
        case CallApproved():
            return {"state": CallState.QUEUED, "approval_id": payload.approval_id or before.approval_id}
        case CallStarted():
            return {"state": CallState.RUNNING, "started_at": event.time}
        case CallDenied():
            ended = {"is_error": True, "code": payload.code, "reason": payload.reason, "ended_at": event.time}
            return {"state": CallState.DENIED, **ended}
        case CallCompleted():
            return {
                "state": CallState.COMPLETED,
                "is_error": payload.is_error,
                "code": payload.code,
                "result": payload.result_preview,
                "result_ref": payload.result_ref,
                "ended_at": event.time,
                "duration_ms": payload.duration_ms,
                "differs": payload.differs,
            }
        case _:
            return {}
