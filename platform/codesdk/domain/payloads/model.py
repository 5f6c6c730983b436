"""Runtime and model events.

`model.input` has what the runtime was given, `model.output.completed` the outcome. The deltas between them are for live
display.
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

from pydantic import Field

from codesdk.domain.artifact_refs import ArtifactRef
from codesdk.domain.content import AssistantBlock
from codesdk.domain.events import EventType
from codesdk.domain.ids import ToolCallId
from codesdk.domain.payloads.payload import Payload
from codesdk.domain.runtime_input import CompiledMode, ContextWindow, ToolManifest
from codesdk.domain.structured_errors import StructuredError


class ModelInput(Payload):
    """The canonical input of one request to the runtime."""

    event_type: ClassVar[EventType] = EventType.MODEL_INPUT

    input_ref: ArtifactRef
    """The complete compiled input (`RuntimeInput`)."""
    input_hash: str
    """`sha256:<hex>` of its canonical JSON."""
    implicit_sources_ref: ArtifactRef
    """What the runtime adds on its own, or the fact that it can't (`ImplicitSources`)."""
    mode: CompiledMode
    """`full`: the whole history; `delta`: only what is new to the runtime."""
    context_window: ContextWindow
    """What was left out to fit the context window."""
    tool_manifest: ToolManifest | None = None
    """Names and schema hashes of the offered tools."""


class RuntimeRequestStarted(Payload):
    """A request to the runtime, or from the runtime to its model, starts."""

    event_type: ClassVar[EventType] = EventType.RUNTIME_REQUEST_STARTED

    request_id: str
    """Links it to its `runtime.request.completed`."""
    operation: str
    """The runtime's name for it: `turn/start`, `session/prompt`, `messages` …"""
    attempt: int = Field(default=1, ge=1)
    """Counts the runtime's own retries of the request."""


class RuntimeRequestCompleted(Payload):
    """The request ended, successfully or not."""

    event_type: ClassVar[EventType] = EventType.RUNTIME_REQUEST_COMPLETED

    request_id: str
    """The id of its `runtime.request.started`."""
    is_error: bool = False
    """Whether it failed."""
    error: StructuredError | None = None
    """The error, if it failed."""
    stop_reason: str | None = None
    """The model's stop reason."""
    duration_ms: float | None = Field(default=None, ge=0)
    """Duration in milliseconds."""


class ModelOutputDeltaKind(StrEnum):
    """The content of a delta."""

    TEXT_DELTA = "text_delta"
    JSON_DELTA = "json_delta"
    """Arguments of a tool call."""
    CODE_DELTA = "code_delta"
    UNKNOWN_DELTA = "unknown_delta"


class ModelOutputDelta(Payload):
    """The next part of a block."""

    event_type: ClassVar[EventType] = EventType.MODEL_OUTPUT_DELTA

    kind: ModelOutputDeltaKind
    """The content of the delta."""
    block_id: str
    """The same for all deltas of one block, and unique within the task."""
    delta: str
    """Text to append to the block."""
    tool_call_id: ToolCallId | None = None
    """The tool call whose arguments these are; set in all their deltas."""
    language: str | None = None
    """The language of code."""


class ModelOutputCompleted(Payload):
    """A finished message of the assistant. It becomes part of the transcript; the deltas don't."""

    event_type: ClassVar[EventType] = EventType.MODEL_OUTPUT_COMPLETED

    content: tuple[AssistantBlock, ...]
    """The finished blocks, in order."""
    block_ids: tuple[str, ...] | None = None
    """The deltas' `block_id` for each block of `content`, in order."""
    message_id: str | None = None
    """The runtime's id of the message. A later message with the same id replaces the earlier one."""


class UsageScope(StrEnum):
    """What a usage report counts."""

    MESSAGE = "message"
    """One answer of the model. The last report of a message counts."""
    TASK = "task"
    """The whole task so far. The last report counts, and replaces those of its messages."""


class CostSource(StrEnum):
    """Where a price comes from."""

    REPORTED = "reported"
    """Reported by the runtime."""
    ESTIMATED = "estimated"
    """Computed from tokens and a price list."""


class UsageReported(Payload):
    """Tokens, cost and time, as far as the runtime reports them. A missing value is unknown, not zero."""

    event_type: ClassVar[EventType] = EventType.USAGE_REPORTED

    scope: UsageScope
    """What the report counts; determines how reports add up."""
    message_id: str | None = None
    """The runtime's id of the answer. Runtimes repeat a report for each part of one."""
    input_tokens: int | None = Field(default=None, ge=0)
    """Without cached tokens."""
    output_tokens: int | None = Field(default=None, ge=0)
    """Including reasoning tokens."""
    reasoning_tokens: int | None = Field(default=None, ge=0)
    """The part of `output_tokens` that is hidden reasoning."""
    cache_read_tokens: int | None = Field(default=None, ge=0)
    """Input tokens read from the provider's cache."""
    cache_write_tokens: int | None = Field(default=None, ge=0)
    """Input tokens written to the provider's cache."""
    cost_usd: float | None = Field(default=None, ge=0)
    """Cost in US dollars."""
    cost_source: CostSource | None = None
    """Set if and only if `cost_usd` is."""
    duration_ms: float | None = Field(default=None, ge=0)
    """Time of the model's work in milliseconds."""
    first_token_ms: float | None = Field(default=None, ge=0)
    """Milliseconds until the first output."""
