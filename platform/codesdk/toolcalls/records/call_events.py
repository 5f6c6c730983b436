"""The events of a call: pure functions from what happened to what is written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, TypedDict

from codesdk.approvals import GrantCoverage, SkippedGrant
from codesdk.artifacts import Artifact
from codesdk.domain.artifact_refs import ArtifactRef
from codesdk.domain.calls import CallIdentity, DenialCode, ToolCall
from codesdk.domain.decisions import Decision, Effect, Evaluation, PermissionMode, PolicySnapshot, Speaker
from codesdk.domain.events import RuntimeInfo, Trace
from codesdk.domain.execution import SandboxSummary, ToolExecutedBy, ToolExecutionEnv
from codesdk.domain.payloads import (
    CallApproved,
    CallCompleted,
    CallDenied,
    CallPolicyEvaluated,
    CallRequested,
    CallStarted,
    OutputCompleted,
    OutputDelta,
    Payload,
)
from codesdk.domain.subjects import Subject
from codesdk.domain.tool_results import ToolResult, Truncation
from codesdk.eventlog.log import EventDraft
from codesdk.sandbox.port import Stream

INLINE_RESULT_BYTES = 8 * 1024
"""A result up to this size stands in its event whole; a larger one becomes an artifact with a preview."""


class Identity(TypedDict):
    """The fields of `CallIdentity`."""

    tool_call_id: Any
    runtime_tool_call_id: str | None
    attempt: int
    input_hash: str


def draft(subject: Subject, payload: Payload) -> EventDraft:
    """An event of the subject's session."""
    trace = Trace(session_id=subject.session_id, user_id=subject.principal_id)
    runtime = RuntimeInfo(name=subject.runtime)
    return EventDraft(type=payload.event_type, trace=trace, runtime=runtime, payload=payload.wire())


def requested(call: ToolCall, subject: Subject, input_ref: Artifact | None) -> EventDraft:
    """The first event of every call, before anybody judges it."""
    ref = artifact_ref(input_ref) if input_ref else None
    given = None if ref else call.input
    return draft(subject, CallRequested(**_identity(call.identity), name=call.name, input=given, input_ref=ref))


def policy_evaluated(call: ToolCall, subject: Subject, evaluation: Evaluation, **more: Any) -> EventDraft:
    """One voice: policy, runtime or a person."""
    evaluated = {**_identity(call.identity), "name": call.name, **evaluation.model_dump(), **more}
    return draft(subject, CallPolicyEvaluated.model_validate(evaluated))


def policy_details(decision: Decision, passed: tuple[SkippedGrant, ...] = ()) -> dict[str, Any]:
    """What our policy adds to its voice: every rule that spoke, why, of which bundle, and in spite of which grants."""
    found: dict[str, Any] = {"rules": decision.rules, "reason": decision.reason, "bundle_hash": decision.bundle_hash}
    obliged = decision.obligations.model_dump(mode="json", exclude_defaults=True)
    if obliged:
        found["obligations"] = obliged
    if passed:
        found["grants_passed"] = tuple(each.model_dump(mode="json") for each in passed)
    return found


class DecisionEvents(NamedTuple):
    """The decisions about a call before any approval."""

    sources: tuple[Evaluation, ...]
    drafts: tuple[EventDraft, ...]
    """Their events, in this order."""


def decision_events(
    call: ToolCall, subject: Subject, decision: Decision, cover: GrantCoverage, *, granted: bool
) -> DecisionEvents:
    """The voice of policy, and of whoever gave the grant that lets the call through, where it is `granted`."""
    rule = decision.rules[0] if decision.rules else None
    evaluated = Evaluation(source=Speaker.CODESDK, result=Effect.ASK if granted else decision.effect, rule=rule)
    by_policy = policy_evaluated(call, subject, evaluated, **policy_details(decision, cover.passed))
    if not granted or cover.grant is None:
        return DecisionEvents((evaluated,), (by_policy,))
    granted_before = Evaluation(source=Speaker.USER, result=Effect.ALLOW)
    given = {"grant_id": cover.grant.id, "decided_by": cover.grant.granted_by}
    return DecisionEvents(
        (evaluated, granted_before), (by_policy, policy_evaluated(call, subject, granted_before, **given))
    )


def retry_requested(call: ToolCall, subject: Subject, first: dict[str, Any]) -> EventDraft:
    """The first event of another attempt. `first`: the payload of the one before, as the log has it; empty where not."""
    whole = first or {"name": call.name, "input": call.input}
    return draft(subject, CallRequested.model_validate({**whole, **_identity(call.identity)}))


def approved(
    call: ToolCall, subject: Subject, sources: tuple[Evaluation, ...], approval: str | None, grant: str | None = None
) -> EventDraft:
    """The terminal decision of a call that runs; written by the worker's claim alone."""
    payload = CallApproved(
        **_identity(call.identity),
        name=call.name,
        policy_snapshot=_snapshot(subject, "allow", sources),
        approval_id=approval,
        grant_id=grant,
    )
    return draft(subject, payload)


def denied(
    call: ToolCall, subject: Subject, sources: tuple[Evaluation, ...], code: DenialCode, reason: str
) -> EventDraft:
    """The terminal decision of a call that does not run."""
    payload = CallDenied(
        **_identity(call.identity),
        name=call.name,
        reason=reason,
        code=code.value,
        policy_snapshot=_snapshot(subject, "deny", sources),
    )
    return draft(subject, payload)


def started(call: ToolCall, subject: Subject, environment: str, sandbox: SandboxSummary) -> EventDraft:
    """It is about to run; nothing but `completed` can follow."""
    payload = CallStarted(
        **_identity(call.identity), name=call.name, execution_env=ToolExecutionEnv(environment), sandbox=sandbox
    )
    return draft(subject, payload)


def output_delta(call: ToolCall, subject: Subject, stream: Stream, offset: int, text: str) -> EventDraft:
    """What the tool printed from byte `offset` of that stream."""
    return draft(subject, OutputDelta(**_identity(call.identity), stream=stream, offset=offset, delta=text))


def output_completed(call: ToolCall, subject: Subject, result: ToolResult) -> EventDraft:
    """The output's accounting: bytes written, shown, dropped."""
    return draft(subject, OutputCompleted(**_identity(call.identity), stdout=result.stdout, stderr=result.stderr))


def output_cut_off(call: ToolCall, subject: Subject, received: Mapping[str, int]) -> EventDraft:
    """The same of an attempt whose result knows nothing of its output; `received`: bytes of each stream."""
    counted = {stream: Truncation(bytes=count, shown=0) for stream, count in received.items()}
    return draft(subject, OutputCompleted(**_identity(call.identity), **counted, cut_off=True))


def completed(
    call: ToolCall,
    subject: Subject,
    sources: tuple[Evaluation, ...],
    result: ToolResult,
    *,
    environment: str,
    sandbox: SandboxSummary,
    result_ref: Artifact | None,
    duration_ms: float,
) -> EventDraft:
    """The end of a call that ran, well or not."""
    whole = result.structured if result.structured is not None else result.text
    payload = CallCompleted(
        **_identity(call.identity),
        name=call.name,
        executed_by=ToolExecutedBy.CODESDK,
        execution_env=ToolExecutionEnv(environment),
        policy_snapshot=_snapshot(subject, "allow", sources),
        sandbox=sandbox,
        is_error=result.is_error,
        duration_ms=round(duration_ms, 3),
        code=result.code or None,
        differs=result.differs or None,
        result_ref=artifact_ref(result_ref) if result_ref else None,
        result_preview=result.text[: INLINE_RESULT_BYTES // 8] if result_ref else whole,
    )
    return draft(subject, payload)


def _identity(identity: CallIdentity) -> Identity:
    return {
        "tool_call_id": identity.tool_call_id,
        "runtime_tool_call_id": identity.runtime_tool_call_id,
        "attempt": identity.attempt,
        "input_hash": identity.input_hash,
    }


def _snapshot(subject: Subject, decision: Literal["allow", "deny"], sources: tuple[Evaluation, ...]) -> PolicySnapshot:
    return PolicySnapshot(permission_mode=PermissionMode(subject.permission_mode), decision=decision, sources=sources)


def artifact_ref(artifact: Artifact) -> ArtifactRef:
    """What stands in an event in place of its bytes."""
    return ArtifactRef(artifact_id=artifact.id, content_hash=artifact.content_hash, size=artifact.size)
