"""Of a task.

Each carries `trace.task_id`. `task.started` is the task's first event; exactly one of the others is its last.
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
    """A runtime begins to work on what the user said."""

    event_type: ClassVar[EventType] = EventType.TASK_STARTED

    messages: tuple[TranscriptMessage, ...]
    """The user's new messages, not the compiled input: these enter the transcript."""
    permission_mode: PermissionMode | None = None
    """How eager the task is to ask people."""
    interaction_mode: InteractionMode | None = None
    """Whether the runtime's own prompts may wait for a person."""
    resume: ResumeModel | None = None
    """How the runtime got what was said before; missing in a session's first task."""


class TaskCompleted(Payload):
    """The runtime came to its own end."""

    event_type: ClassVar[EventType] = EventType.TASK_COMPLETED

    stop_reason: str | None = None
    """The runtime's word for why it ended: `end_turn`, `max_turns` …"""
    duration_ms: float | None = Field(default=None, ge=0)
    """Milliseconds since `task.started`."""


class TaskFailed(Payload):
    """It could not go on."""

    event_type: ClassVar[EventType] = EventType.TASK_FAILED

    error: StructuredError
    """What, and what to do; `CONTEXT_TOO_LARGE` where the runtime refused the size of its input."""
    duration_ms: float | None = Field(default=None, ge=0)
    """Milliseconds since `task.started`."""


class TaskStopped(Payload):
    """Somebody stopped it; no tool runs after this."""

    event_type: ClassVar[EventType] = EventType.TASK_STOPPED

    reason: str | None = None
    """What was said when it was stopped."""
    stopped_by: str | None = None
    """The principal that asked; missing where CodeSDK itself did (a budget, a lifetime, a closed session)."""
    duration_ms: float | None = Field(default=None, ge=0)
    """Milliseconds since `task.started`."""
