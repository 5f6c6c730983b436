"""Of a runtime and its model.

`model.input` says what the runtime was given, `model.output.completed` what came of it; the deltas between are for
watching.
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
    """The whole compiled input (`RuntimeInput`)."""
    input_hash: str
    """`sha256:<hex>` of its canonical JSON."""
    implicit_sources_ref: ArtifactRef
    """What the runtime adds on its own, or that nothing can (`ImplicitSources`)."""
    mode: CompiledMode
    """`full`: the whole history; `delta`: only what is new to the runtime."""
    context_window: ContextWindow
    """What was left out to make it fit."""
    tool_manifest: ToolManifest | None = None
    """Names and schema hashes of the tools that were exposed."""


class RuntimeRequestStarted(Payload):
    """A request to the runtime, or of the runtime to its model, begins."""

    event_type: ClassVar[EventType] = EventType.RUNTIME_REQUEST_STARTED

    request_id: str
    """Ties it to its `runtime.request.completed`."""
    operation: str
    """The runtime's word for it: `turn/start`, `session/prompt`, `messages` …"""
    attempt: int = Field(default=1, ge=1)
    """Counts the runtime's own repetitions of the same request."""


class RuntimeRequestCompleted(Payload):
    """It ended, well or not."""

    event_type: ClassVar[EventType] = EventType.RUNTIME_REQUEST_COMPLETED

    request_id: str
    """Of its `runtime.request.started`."""
    is_error: bool = False
    """Whether it failed."""
    error: StructuredError | None = None
    """Where it failed."""
    stop_reason: str | None = None
    """The model's word for why it stopped."""
    duration_ms: float | None = Field(default=None, ge=0)
    """Milliseconds."""


class ModelOutputDeltaKind(StrEnum):
    """What a delta is a piece of."""

    TEXT_DELTA = "text_delta"
    JSON_DELTA = "json_delta"
    """Arguments of a tool call."""
    CODE_DELTA = "code_delta"
    UNKNOWN_DELTA = "unknown_delta"


class ModelOutputDelta(Payload):
    """The next piece of a block."""

    event_type: ClassVar[EventType] = EventType.MODEL_OUTPUT_DELTA

    kind: ModelOutputDeltaKind
    """What it is a piece of."""
    block_id: str
    """The same for all pieces of one block, and for no other block of the task."""
    delta: str
    """To be appended to the block."""
    tool_call_id: ToolCallId | None = None
    """Whose arguments these are; in every piece of them."""
    language: str | None = None
    """Of code."""


class ModelOutputCompleted(Payload):
    """A finished message of the assistant: this enters the transcript, the deltas do not."""

    event_type: ClassVar[EventType] = EventType.MODEL_OUTPUT_COMPLETED

    content: tuple[AssistantBlock, ...]
    """The finished blocks, in order."""
    block_ids: tuple[str, ...] | None = None
    """The deltas' `block_id` of each block of `content`, in order."""
    message_id: str | None = None
    """The runtime's id of the message. One that comes again replaces the one before."""


class UsageScope(StrEnum):
    """What a report counts."""

    MESSAGE = "message"
    """One answer of the model; the last report of a message counts."""
    TASK = "task"
    """Everything of the task so far; the last one counts, in place of its messages."""


class CostSource(StrEnum):
    """Where a price comes from."""

    REPORTED = "reported"
    """The runtime said it."""
    ESTIMATED = "estimated"
    """From tokens and a list of prices."""


class UsageReported(Payload):
    """Tokens, money, time, as far as the runtime tells them. What is missing is unknown, not zero."""

    event_type: ClassVar[EventType] = EventType.USAGE_REPORTED

    scope: UsageScope
    """How reports add up; see the transcript's totals."""
    message_id: str | None = None
    """The runtime's id of the answer; runtimes repeat a report for each part of one."""
    input_tokens: int | None = Field(default=None, ge=0)
    """Without those of the cache."""
    output_tokens: int | None = Field(default=None, ge=0)
    """With those of reasoning."""
    reasoning_tokens: int | None = Field(default=None, ge=0)
    """Those of `output_tokens` that nobody sees."""
    cache_read_tokens: int | None = Field(default=None, ge=0)
    """Input that the provider had already."""
    cache_write_tokens: int | None = Field(default=None, ge=0)
    """Input that it keeps for later."""
    cost_usd: float | None = Field(default=None, ge=0)
    """US dollars."""
    cost_source: CostSource | None = None
    """Set where `cost_usd` is."""
    duration_ms: float | None = Field(default=None, ge=0)
    """Milliseconds of the model's work."""
    first_token_ms: float | None = Field(default=None, ge=0)
    """Milliseconds until the first piece of output."""
