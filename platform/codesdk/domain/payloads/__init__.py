"""Event payloads: one model per event type, and the lookup from an event to its model."""

from __future__ import annotations

from pydantic import ValidationError

from codesdk.domain.events import Event, EventType, EventUnreadable
from codesdk.domain.payloads.approval import (
    ApprovalDecided,
    ApprovalEscalated,
    ApprovalExpired,
    ApprovalPreviewed,
    ApprovalPreviewStarted,
    ApprovalRequested,
)
from codesdk.domain.payloads.call import (
    CallApproved,
    CallCompleted,
    CallDenied,
    CallPayload,
    CallPolicyEvaluated,
    CallRequested,
    CallStarted,
    NamedCallPayload,
    OutputCompleted,
    OutputDelta,
)
from codesdk.domain.payloads.model import (
    CostSource,
    ModelInput,
    ModelOutputCompleted,
    ModelOutputDelta,
    ModelOutputDeltaKind,
    RuntimeRequestCompleted,
    RuntimeRequestStarted,
    UsageReported,
    UsageScope,
)
from codesdk.domain.payloads.payload import Payload
from codesdk.domain.payloads.sandbox import (
    FileChange,
    SandboxEgress,
    SandboxFailed,
    SandboxFilesChanged,
    SandboxHalted,
    SandboxSessionClosed,
    SandboxSnapshotRestored,
    SandboxSnapshotTaken,
    SandboxStarted,
    SandboxStopped,
)
from codesdk.domain.payloads.session import SessionCreated
from codesdk.domain.payloads.task import TaskCompleted, TaskFailed, TaskStarted, TaskStopped

__all__ = [
    "PAYLOADS",
    "ApprovalDecided",
    "ApprovalEscalated",
    "ApprovalExpired",
    "ApprovalPreviewStarted",
    "ApprovalPreviewed",
    "ApprovalRequested",
    "CallApproved",
    "CallCompleted",
    "CallDenied",
    "CallPayload",
    "CallPolicyEvaluated",
    "CallRequested",
    "CallStarted",
    "CostSource",
    "FileChange",
    "ModelInput",
    "ModelOutputCompleted",
    "ModelOutputDelta",
    "ModelOutputDeltaKind",
    "NamedCallPayload",
    "OutputCompleted",
    "OutputDelta",
    "Payload",
    "RuntimeRequestCompleted",
    "RuntimeRequestStarted",
    "SandboxEgress",
    "SandboxFailed",
    "SandboxFilesChanged",
    "SandboxHalted",
    "SandboxSessionClosed",
    "SandboxSnapshotRestored",
    "SandboxSnapshotTaken",
    "SandboxStarted",
    "SandboxStopped",
    "SessionCreated",
    "TaskCompleted",
    "TaskFailed",
    "TaskStarted",
    "TaskStopped",
    "UsageReported",
    "UsageScope",
    "read_payload",
]

PAYLOADS: dict[EventType, type[Payload]] = {
    model.event_type: model
    for model in (
        SessionCreated,
        TaskStarted,
        ModelInput,
        RuntimeRequestStarted,
        RuntimeRequestCompleted,
        ModelOutputDelta,
        ModelOutputCompleted,
        CallRequested,
        CallPolicyEvaluated,
        CallApproved,
        CallDenied,
        CallStarted,
        OutputDelta,
        OutputCompleted,
        CallCompleted,
        UsageReported,
        TaskCompleted,
        TaskFailed,
        TaskStopped,
        ApprovalRequested,
        ApprovalPreviewStarted,
        ApprovalPreviewed,
        ApprovalEscalated,
        ApprovalDecided,
        ApprovalExpired,
        SandboxStarted,
        SandboxFailed,
        SandboxEgress,
        SandboxFilesChanged,
        SandboxHalted,
        SandboxSnapshotTaken,
        SandboxSnapshotRestored,
        SandboxStopped,
        SandboxSessionClosed,
    )
}
"""The payload model of every type that this version knows."""


def read_payload(event: Event) -> Payload | None:
    """Return the event's payload as its model; None for a type of ours that this version doesn't know.

    Raises:
        EventUnreadable: the payload doesn't match its type.
    """
    model = PAYLOADS.get(event.type) if isinstance(event.type, EventType) else None
    if model is None:
        return None
    try:
        return model.model_validate(event.payload, extra="ignore")
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(step) for step in first["loc"])
        raise EventUnreadable(
            f"Event {event.seq} ({event.type}) has a wrong payload: {place}: {first['msg']}."
        ) from error
