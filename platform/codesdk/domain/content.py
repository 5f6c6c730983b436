"""What a conversation is made of: blocks, told apart by `type`, and messages (contract 000)."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field

from codesdk.domain.decisions import Frozen
from codesdk.domain.ids import ArtifactId, ToolCallId


class TranscriptRole(StrEnum):
    """Who speaks in a message."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class TextBlock(Frozen):
    """Prose."""

    type: Literal["text"] = "text"
    text: str


class CodeBlock(Frozen):
    """Source text that a reader may want to highlight."""

    type: Literal["code"] = "code"
    code: str
    language: str | None = None


class ArtifactBlock(Frozen):
    """A file, an image, a large body: stored as an artifact, named here."""

    type: Literal["artifact_ref"] = "artifact_ref"
    artifact_id: ArtifactId
    name: str | None = None
    content_type: str | None = None


class ToolUseBlock(Frozen):
    """The assistant asks for a tool."""

    type: Literal["tool_use"] = "tool_use"
    tool_call_id: ToolCallId
    name: str
    """Dotted name."""
    input: Any = None
    """The arguments; an artifact reference (`artifact_id`, `content_hash`, `size`) where they are large."""


class ToolResultBlock(Frozen):
    """What the tool answered, or why it did not run."""

    type: Literal["tool_result"] = "tool_result"
    tool_call_id: ToolCallId
    result: Any = None
    """The result, missing where it is null; where it is large, an object with `artifact_ref` and `preview`."""
    is_error: bool | None = None


AssistantBlock = Annotated[TextBlock | CodeBlock | ArtifactBlock, Field(discriminator="type")]
"""What an assistant's finished output consists of."""

TranscriptBlock = Annotated[
    TextBlock | CodeBlock | ArtifactBlock | ToolUseBlock | ToolResultBlock, Field(discriminator="type")
]
"""What any message consists of."""


class TranscriptMessage(Frozen):
    """One turn of one speaker."""

    role: TranscriptRole
    content: tuple[TranscriptBlock, ...]
