"""Of a tool call.

All carry the identity of the attempt: `tool_call_id`, `attempt`, `input_hash`, and `runtime_tool_call_id` where the
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
    """What every event of an attempt carries."""


class NamedCallPayload(CallPayload):
    """And those that name the tool."""

    name: str
    """Dotted name of the tool."""


class CallRequested(NamedCallPayload):
    """The first event of every attempt, before anybody judges it."""

    event_type: ClassVar[EventType] = EventType.CALL_REQUESTED

    input: dict[str, Any] | None = None
    """The arguments, up to 8 KiB of canonical JSON."""
    input_ref: ArtifactRef | None = None
    """In place of `input` where that is larger."""


class CallPolicyEvaluated(Evaluation, NamedCallPayload):
    """One voice; there may be several before the decision."""

    event_type: ClassVar[EventType] = EventType.CALL_POLICY_EVALUATED

    rules: tuple[str, ...] | None = None
    """Ids of all matching rules of the winning effect; empty where the default decided. From policy."""
    reason: str | None = None
    """One sentence. From policy."""
    bundle_hash: str | None = None
    """`sha256:` of the bundle that spoke. From policy."""
    obligations: dict[str, Any] | None = None
    """What must hold if it runs: `timeout_s`, and bounds of the `sandbox`. From policy, where it demands any."""
    approval_id: str | None = None
    """From a person."""
    decided_by: str | None = None
    """The principal that answered. From a person."""
    comment: str | None = None
    """From a person."""
    grant_id: str | None = None
    """The grant with which a person answered before, in place of `approval_id`."""
    grants_passed: tuple[dict[str, str], ...] | None = None
    """Grants for this tool that do not let this call through: `grant_id`, and `because` of another `tool` (that ended it),
    `image`, `profile` or `rules`. From policy, where it asks in spite of them."""


class CallApproved(NamedCallPayload):
    """The terminal decision of a call that runs; `tool.call.started` follows directly."""

    event_type: ClassVar[EventType] = EventType.CALL_APPROVED

    policy_snapshot: PolicySnapshot
    """The voices that led to the decision."""
    approval_id: str | None = None
    """Where a person approved."""
    grant_id: str | None = None
    """Where a person had granted calls of its kind."""


class CallDenied(NamedCallPayload):
    """The terminal decision of a call that does not run; nothing of it follows."""

    event_type: ClassVar[EventType] = EventType.CALL_DENIED

    reason: str
    """What the agent is told."""
    code: str | None = None
    """One of the [codes of a denial](#codes-of-a-denial); missing where a runtime gives none."""
    policy_snapshot: PolicySnapshot
    """The voices that led to the decision."""


class CallStarted(NamedCallPayload):
    """It is about to run; nothing but output and `tool.call.completed` can follow."""

    event_type: ClassVar[EventType] = EventType.CALL_STARTED

    execution_env: ToolExecutionEnv
    """Where it runs."""
    sandbox: SandboxSummary | None = None
    """What it may use there."""


class OutputDelta(CallPayload):
    """What the tool printed."""

    event_type: ClassVar[EventType] = EventType.OUTPUT_DELTA

    stream: Literal["stdout", "stderr"]
    """Which of the command's streams."""
    offset: int = Field(ge=0)
    """Byte of the stream where `delta` begins. A stretch may come again, from a worker that took the call up: same place."""
    delta: str
    """Text; bytes that are no UTF-8 are shown as U+FFFD."""


class OutputCompleted(CallPayload):
    """The output's accounting, for an attempt that had any, however it ended."""

    event_type: ClassVar[EventType] = EventType.OUTPUT_COMPLETED

    stdout: Truncation | None = None
    """Of standard output, where the tool had one."""
    stderr: Truncation | None = None
    """Of standard error."""
    cut_off: bool | None = None
    """The attempt was lost or failed: `bytes` is how far its output had come, at least, and the deltas alone have it."""


class CallCompleted(NamedCallPayload):
    """The end of a call that ran, well or not."""

    event_type: ClassVar[EventType] = EventType.CALL_COMPLETED

    executed_by: ToolExecutedBy
    """Who ran it."""
    execution_env: ToolExecutionEnv
    """Where it runs."""
    policy_snapshot: PolicySnapshot
    """The voices that led to the decision."""
    sandbox: SandboxSummary | None = None
    """What it may use there."""
    is_error: bool = False
    """Whether it failed; a command that exits with another code than 0 did."""
    duration_ms: float | None = Field(default=None, ge=0)
    """Milliseconds of the run itself."""
    differs: tuple[str, ...] | None = None
    """In what it was not as the [preview](approvals.md#previews) that was approved, where it was not."""
    code: str | None = None
    """One of the [codes of a completed call](#codes-of-a-completed-call), where there is one."""
    result_ref: ArtifactRef | None = None
    """The whole result, above 8 KiB."""
    result_preview: Any = None
    """The result; where `result_ref` has it, the beginning of its text."""
