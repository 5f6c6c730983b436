"""Task events.

All of them have `trace.task_id`. `task.started` is the task's first event; exactly one of the others is its last.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from codesdk.domain.content import TranscriptMessage
from codesdk.domain.decisions import PermissionMode
from codesdk.domain.events import EventType
from codesdk.domain.payloads.payload import Payload
from codesdk.domain.runtimes import InteractionMode, ResumeModel
from codesdk.domain.structured_errors import StructuredError


class TaskStarted(Payload):
    """A runtime starts working on the user's messages."""

    event_type: ClassVar[EventType] = EventType.TASK_STARTED

    messages: tuple[TranscriptMessage, ...]
    """The user's new messages, which become part of the transcript. Not the compiled input."""
    permission_mode: PermissionMode | None = None
    """Permission mode: when the task asks for approval."""
    interaction_mode: InteractionMode | None = None
    """Whether the runtime's own prompts may wait for a person."""
    resume: ResumeModel | None = None
    """How the runtime got the earlier conversation; missing in a session's first task."""


class TaskCompleted(Payload):
    """The runtime finished."""

    event_type: ClassVar[EventType] = EventType.TASK_COMPLETED

    stop_reason: str | None = None
    """The runtime's stop reason: `end_turn`, `max_turns` …"""
    duration_ms: float | None = Field(default=None, ge=0)
    """Milliseconds since `task.started`."""


class TaskFailed(Payload):
    """The task failed."""

    event_type: ClassVar[EventType] = EventType.TASK_FAILED

    error: StructuredError
    """The error, with advice. `CONTEXT_TOO_LARGE` if the runtime refused the size of its input."""
    duration_ms: float | None = Field(default=None, ge=0)
    """Milliseconds since `task.started`."""


class TaskStopped(Payload):
    """The task was stopped. No tool runs after this."""

    event_type: ClassVar[EventType] = EventType.TASK_STOPPED

    reason: str | None = None
    """The reason given with the stop."""
    stopped_by: str | None = None
    """The principal that stopped it; missing if CodeSDK did (a budget, a lifetime, a closed session)."""
    duration_ms: float | None = Field(default=None, ge=0)
    """Milliseconds since `task.started`."""
