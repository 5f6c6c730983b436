"""Answers of requests that made a tool call: its structured result, what it waits for, or a problem."""

from __future__ import annotations

from fastapi.responses import JSONResponse
from starlette.responses import Response

from codesdk.api.problems import problem_body
from codesdk.domain.calls import CallState, DenialCode
from codesdk.domain.ids import ToolCallId
from codesdk.domain.model import FrozenModel
from codesdk.toolcalls.records.call_record import Denied, Finished, Outcome, Waiting

CALL_HEADER = "CodeSDK-Call"
"""The id of the call, in answers whose body is not JSON."""
_DENIAL_STATUS = {
    DenialCode.QUEUE_FULL: 429,
    DenialCode.RATE_LIMITED: 429,
    DenialCode.LOG_RATE_EXCEEDED: 429,
    DenialCode.TOO_MANY_QUESTIONS: 429,
    DenialCode.SESSION_CLOSED: 409,
    DenialCode.CANCELLED: 409,
}
"""Any other denial is a 403."""
_RESULT_STATUS = {
    "NOT_FOUND": 404,
    "PERMISSION_DENIED": 403,
    "OUTSIDE_WORKSPACE": 403,
    "NOT_REDACTABLE": 403,
    "TOO_LARGE": 413,
    "INVALID_PATH": 422,
    "TREE_DENIED": 403,
    "ARCHIVE_REFUSED": 422,
    "NO_SPACE": 507,
}
"""Any other error of a call is a 409: the state of the workspace or its session does not allow it."""
_ADVICE = {
    "TOO_LARGE": "The limits are `file_bytes` of the session's profile and CODESDK_ARTIFACT_MAX_BYTES.",
    "IS_A_DIRECTORY": "List it with /files/list, or delete it with `recursive`.",
    "CONFLICT": "Read the file again, and repeat the request with its new ETag.",
}


class PendingCall(FrozenModel):
    """A call that has not ended: it needs approval, or still runs."""

    tool_call_id: ToolCallId
    state: CallState
    approval_id: str | None = None
    """The approval that it waits for."""
    who: str = ""
    """Who must approve, as text."""
    reason: str = ""
    expires_at: float | None = None
    """When the approval expires, in seconds since the epoch."""


def answer(outcome: Outcome, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """What the caller of a tool reads: its structured result, or why there is none (yet)."""
    match outcome:
        case Denied(code=code):
            wait = {} if outcome.retry_after_s is None else {"Retry-After": str(round(outcome.retry_after_s + 0.5))}
            return problem_body(
                _DENIAL_STATUS.get(code, 403),
                code.value,
                outcome.message,
                title="The call was denied",
                details={"tool_call_id": outcome.identity.tool_call_id, "rules": list(outcome.rules)},
                headers=wait,
            )
        case Finished(result=result):
            if result.is_error:
                code_ = result.code or "FAILED"
                return failed(outcome, code_, _RESULT_STATUS.get(code_, 409))
            done = {"tool_call_id": outcome.identity.tool_call_id, **(result.structured or {})}
            return JSONResponse(done, status, headers)
        case Waiting():
            pending = PendingCall(
                tool_call_id=outcome.identity.tool_call_id,
                state=CallState.WAITING,
                approval_id=outcome.approval_id,
                who=outcome.who,
                reason=outcome.reason,
                expires_at=outcome.expires_at,
            )
        case _:
            pending = PendingCall(tool_call_id=outcome.identity.tool_call_id, state=CallState.QUEUED)
    return JSONResponse(pending.model_dump(mode="json"), 202)


def failed(outcome: Finished, code: str, status: int) -> Response:
    """The problem of a call that ran and failed."""
    return problem_body(
        status,
        code,
        outcome.result.text,
        title="The file operation failed",
        advice=_ADVICE.get(code, ""),
        details={"tool_call_id": outcome.identity.tool_call_id},
    )
