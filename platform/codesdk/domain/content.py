"""Messages and their content blocks, distinguished by `type` (contract 000)."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field

from codesdk.domain.ids import ArtifactId, ToolCallId
from codesdk.domain.model import FrozenModel


class TranscriptRole(StrEnum):
    """The author of a message."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class TextBlock(FrozenModel):
    """Text."""

    type: Literal["text"] = "text"
    """The block's type."""
    text: str
    """The text."""


class CodeBlock(FrozenModel):
    """Source code, for syntax highlighting."""

    type: Literal["code"] = "code"
    """The block's type."""
    code: str
    """The source code."""
    language: str | None = None
    """Its language: `python`, `diff` …"""


class ArtifactBlock(FrozenModel):
    """A file, an image or other large content, stored as an artifact."""

    type: Literal["artifact_ref"] = "artifact_ref"
    """The block's type."""
    artifact_id: ArtifactId
    """The artifact's id."""
    name: str | None = None
    """Name for display."""
    content_type: str | None = None
    """Media type."""


class ToolUseBlock(FrozenModel):
    """A tool call by the assistant."""

    type: Literal["tool_use"] = "tool_use"
    """The block's type."""
    tool_call_id: ToolCallId
    """The same id as in its `tool_result`."""
    name: str
    """Dotted name of the tool."""
    input: Any = None
    """The arguments, or an artifact reference (`artifact_id`, `content_hash`, `size`) if they are large."""


class ToolResultBlock(FrozenModel):
    """A tool's result, or why it did not run."""

    type: Literal["tool_result"] = "tool_result"
    """The block's type."""
    tool_call_id: ToolCallId
    """The id of its `tool_use`."""
    result: Any = None
    """The result; missing if it is null. If it is large, an object with `artifact_ref` and `preview`."""
    is_error: bool | None = None
    """True if the call failed or was denied."""


AssistantBlock = Annotated[TextBlock | CodeBlock | ArtifactBlock, Field(discriminator="type")]
"""A block of an assistant's finished output."""

TranscriptBlock = Annotated[
    TextBlock | CodeBlock | ArtifactBlock | ToolUseBlock | ToolResultBlock, Field(discriminator="type")
]
"""A block of any message."""


class TranscriptMessage(FrozenModel):
    """One message of a conversation."""

    role: TranscriptRole
    """The message's author."""
    content: tuple[TranscriptBlock, ...]
    """The content, in order."""
