"""The events of a call: pure functions from what happened to what is written."""

from __future__ import annotations

from typing import Any, Literal

from codesdk.artifacts import Artifact
from codesdk.domain.calls import CallIdentity, DenialCode, ToolCall
from codesdk.domain.decisions import Decision, Evaluation, PermissionMode, PolicySnapshot
from codesdk.domain.events import EventType, RuntimeInfo, Trace
from codesdk.domain.subjects import Subject
from codesdk.domain.tools import ToolResult
from codesdk.eventlog.log import Draft

PREVIEW_BYTES = 8 * 1024
"""A result up to this size stands in its event whole; a larger one becomes an artifact with a preview."""


def draft(type_: EventType, subject: Subject, payload: dict[str, Any]) -> Draft:
    """An event of the subject's session."""
    trace = Trace(session_id=subject.session_id, user_id=subject.principal_id)
    return Draft(type=type_, trace=trace, runtime=RuntimeInfo(name=subject.runtime), payload=payload)


def requested(call: ToolCall, subject: Subject, input_ref: Artifact | None) -> Draft:
    """The first event of every call, before anybody judges it."""
    shown = {"input_ref": _ref(input_ref)} if input_ref else {"input": call.input}
    return draft(EventType.CALL_REQUESTED, subject, {**_identity(call.identity), "name": call.name, **shown})


def policy_evaluated(call: ToolCall, subject: Subject, evaluation: Evaluation, **more: Any) -> Draft:
    """One voice: policy, runtime or a person."""
    payload = {**_identity(call.identity), "name": call.name, **evaluation.model_dump(exclude_none=True), **more}
    return draft(EventType.CALL_POLICY_EVALUATED, subject, payload)


def policy_details(decision: Decision) -> dict[str, Any]:
    """What our policy adds to its voice: every rule that spoke, why, and of which bundle."""
    found = {"rules": list(decision.rules), "reason": decision.reason, "bundle_hash": decision.bundle_hash}
    obliged = decision.obligations.model_dump(mode="json", exclude_defaults=True)
    return {**found, "obligations": obliged} if obliged else found


def approved(call: ToolCall, subject: Subject, sources: tuple[Evaluation, ...], approval: str | None) -> Draft:
    """The terminal decision of a call that runs; written by the worker's claim alone."""
    payload = {**_identity(call.identity), "name": call.name, "policy_snapshot": _snapshot(subject, "allow", sources)}
    if approval:
        payload["approval_id"] = approval
    return draft(EventType.CALL_APPROVED, subject, payload)


def denied(call: ToolCall, subject: Subject, sources: tuple[Evaluation, ...], code: DenialCode, reason: str) -> Draft:
    """The terminal decision of a call that does not run."""
    payload = {
        **_identity(call.identity),
        "name": call.name,
        "reason": reason,
        "code": code.value,
        "policy_snapshot": _snapshot(subject, "deny", sources),
    }
    return draft(EventType.CALL_DENIED, subject, payload)


def started(call: ToolCall, subject: Subject, environment: str, sandbox: dict[str, Any]) -> Draft:
    """It is about to run; nothing but `completed` can follow."""
    payload = {**_identity(call.identity), "name": call.name, "execution_env": environment, "sandbox": sandbox}
    return draft(EventType.CALL_STARTED, subject, payload)


def output_delta(call: ToolCall, subject: Subject, stream: str, offset: int, text: str) -> Draft:
    """What the tool printed from byte `offset` of that stream."""
    payload = {**_identity(call.identity), "stream": stream, "offset": offset, "delta": text}
    return draft(EventType.OUTPUT_DELTA, subject, payload)


def output_completed(call: ToolCall, subject: Subject, result: ToolResult) -> Draft:
    """The output's accounting: bytes written, shown, dropped."""
    streams = {"stdout": result.stdout, "stderr": result.stderr}
    counts = {name: count.model_dump() for name, count in streams.items() if count}
    return draft(EventType.OUTPUT_COMPLETED, subject, {**_identity(call.identity), **counts})


def completed(
    call: ToolCall,
    subject: Subject,
    sources: tuple[Evaluation, ...],
    result: ToolResult,
    *,
    environment: str,
    sandbox: dict[str, Any],
    result_ref: Artifact | None,
    duration_ms: float,
) -> Draft:
    """The end of a call that ran, well or not."""
    payload: dict[str, Any] = {
        **_identity(call.identity),
        "name": call.name,
        "executed_by": "codesdk",
        "execution_env": environment,
        "policy_snapshot": _snapshot(subject, "allow", sources),
        "sandbox": sandbox,
        "is_error": result.is_error,
        "duration_ms": round(duration_ms, 3),
    }
    if result.code:
        payload["code"] = result.code
    if result_ref:
        payload["result_ref"] = _ref(result_ref)
        payload["result_preview"] = result.text[: PREVIEW_BYTES // 8]
    else:
        payload["result_preview"] = result.structured if result.structured is not None else result.text
    return draft(EventType.CALL_COMPLETED, subject, payload)


def _identity(identity: CallIdentity) -> dict[str, Any]:
    return identity.model_dump(exclude_none=True)


def _snapshot(subject: Subject, decision: Literal["allow", "deny"], sources: tuple[Evaluation, ...]) -> dict[str, Any]:
    mode = PermissionMode(subject.permission_mode)
    return PolicySnapshot(permission_mode=mode, decision=decision, sources=sources).model_dump(
        mode="json", exclude_none=True
    )


def _ref(artifact: Artifact) -> dict[str, Any]:
    return {"artifact_id": artifact.id, "content_hash": artifact.content_hash, "size": artifact.size}
