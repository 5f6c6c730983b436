"""Tool call events.

All of them identify the attempt by `tool_call_id`, `attempt` and `input_hash`, and by `runtime_tool_call_id` if the
client gave one.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from codesdk.domain.artifact_refs import ArtifactRef
from codesdk.domain.calls import CallIdentity
from codesdk.domain.decisions import Evaluation, PolicySnapshot
from codesdk.domain.events import EventType
from codesdk.domain.execution import SandboxSummary, ToolExecutedBy, ToolExecutionEnv
from codesdk.domain.payloads.payload import Payload
from codesdk.domain.tool_results import Truncation


class CallPayload(Payload, CallIdentity):
    """Base of all events of an attempt."""


class NamedCallPayload(CallPayload):
    """Base of the events that name the tool."""

    name: str
    """Dotted name of the tool."""


class CallRequested(NamedCallPayload):
    """The first event of every attempt, before any evaluation."""

    event_type: ClassVar[EventType] = EventType.CALL_REQUESTED

    input: dict[str, Any] | None = None
    """The arguments, up to 8 KiB of canonical JSON."""
    input_ref: ArtifactRef | None = None
    """The arguments as an artifact, if they are larger."""


class CallPolicyEvaluated(Evaluation, NamedCallPayload):
    """One evaluation. There may be several before the decision."""

    event_type: ClassVar[EventType] = EventType.CALL_POLICY_EVALUATED

    rules: tuple[str, ...] | None = None
    """From policy: ids of all matching rules of the winning effect. Empty if the default decided."""
    reason: str | None = None
    """From policy: one sentence."""
    bundle_hash: str | None = None
    """From policy: `sha256:` of the bundle."""
    obligations: dict[str, Any] | None = None
    """From policy: the obligations, if any: `timeout_s`, and limits of the `sandbox`."""
    approval_id: str | None = None
    """From a person: the approval's id."""
    decided_by: str | None = None
    """From a person: the principal that voted."""
    comment: str | None = None
    """From a person: the comment."""
    grant_id: str | None = None
    """The grant that covers the call, instead of `approval_id`."""
    grants_passed: tuple[dict[str, str], ...] | None = None
    """From policy, if it asks: grants for this tool that don't cover the call, as `grant_id` and `because`: another
    `tool` (which ended the grant), `image`, `profile` or `rules`.
    """


class CallApproved(NamedCallPayload):
    """The final decision for a call that runs; `tool.call.started` follows directly."""

    event_type: ClassVar[EventType] = EventType.CALL_APPROVED

    policy_snapshot: PolicySnapshot
    """The evaluations that led to the decision."""
    approval_id: str | None = None
    """The approval, if a person approved."""
    grant_id: str | None = None
    """The grant, if one covered the call."""


class CallDenied(NamedCallPayload):
    """The final decision for a call that doesn't run. No further event of the attempt follows."""

    event_type: ClassVar[EventType] = EventType.CALL_DENIED

    reason: str
    """The message to the agent."""
    code: str | None = None
    """One of the [codes of a denial](#codes-of-a-denial); missing if a runtime gives none."""
    policy_snapshot: PolicySnapshot
    """The evaluations that led to the decision."""


class CallStarted(NamedCallPayload):
    """The call is about to run. Only output and `tool.call.completed` can follow."""

    event_type: ClassVar[EventType] = EventType.CALL_STARTED

    execution_env: ToolExecutionEnv
    """Where it runs."""
    sandbox: SandboxSummary | None = None
    """Its sandbox's limits."""


class OutputDelta(CallPayload):
    """Output of the tool."""

    event_type: ClassVar[EventType] = EventType.OUTPUT_DELTA

    stream: Literal["stdout", "stderr"]
    """The command's stream."""
    offset: int = Field(ge=0)
    """Offset in bytes at which `delta` begins. A range can be repeated after a takeover, at the same offset."""
    delta: str
    """Text. Invalid UTF-8 is replaced by U+FFFD."""


class OutputCompleted(CallPayload):
    """Totals of the output, for any attempt that had output."""

    event_type: ClassVar[EventType] = EventType.OUTPUT_COMPLETED

    stdout: Truncation | None = None
    """Totals of standard output, if the tool has one."""
    stderr: Truncation | None = None
    """Totals of standard error."""
    cut_off: bool | None = None
    """The attempt was lost or failed: `bytes` is a lower bound, and only the deltas have the output."""


class CallCompleted(NamedCallPayload):
    """The end of a call that ran, successful or not."""

    event_type: ClassVar[EventType] = EventType.CALL_COMPLETED

    executed_by: ToolExecutedBy
    """Who ran it."""
    execution_env: ToolExecutionEnv
    """Where it ran."""
    policy_snapshot: PolicySnapshot
    """The evaluations that led to the decision."""
    sandbox: SandboxSummary | None = None
    """Its sandbox's limits."""
    is_error: bool = False
    """Whether it failed. A command fails if its exit code isn't 0."""
    duration_ms: float | None = Field(default=None, ge=0)
    """Duration of the run in milliseconds."""
    differs: tuple[str, ...] | None = None
    """How it differed from the approved [preview](approvals.md#previews), if it did."""
    code: str | None = None
    """One of the [codes of a completed call](#codes-of-a-completed-call), if any."""
    result_ref: ArtifactRef | None = None
    """The whole result, if it exceeds 8 KiB."""
    result_preview: Any = None
    """The result; with `result_ref`, the beginning of its text."""
