"""Messages and their content blocks, distinguished by `type` (contract 000)."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field

from codesdk.domain.ids import ArtifactId, ToolCallId
from codesdk.domain.model import FrozenModel


class TranscriptRole(StrEnum):
    """Who speaks in a message."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class TextBlock(FrozenModel):
    """Prose."""

    type: Literal["text"] = "text"
    """What kind of block it is."""
    text: str
    """As it is to be read."""


class CodeBlock(FrozenModel):
    """Source text that a reader may want to highlight."""

    type: Literal["code"] = "code"
    """What kind of block it is."""
    code: str
    """The source."""
    language: str | None = None
    """Of the source: `python`, `diff` …"""


class ArtifactBlock(FrozenModel):
    """A file, an image, a large body: stored as an artifact, named here."""

    type: Literal["artifact_ref"] = "artifact_ref"
    """What kind of block it is."""
    artifact_id: ArtifactId
    """Where the bytes are."""
    name: str | None = None
    """For people."""
    content_type: str | None = None
    """Media type."""


class ToolUseBlock(FrozenModel):
    """The assistant asks for a tool."""

    type: Literal["tool_use"] = "tool_use"
    """What kind of block it is."""
    tool_call_id: ToolCallId
    """The same in its `tool_result`."""
    name: str
    """Dotted name."""
    input: Any = None
    """The arguments; an artifact reference (`artifact_id`, `content_hash`, `size`) where they are large."""


class ToolResultBlock(FrozenModel):
    """What the tool answered, or why it did not run."""

    type: Literal["tool_result"] = "tool_result"
    """What kind of block it is."""
    tool_call_id: ToolCallId
    """Of its `tool_use`."""
    result: Any = None
    """The result, missing where it is null; where it is large, an object with `artifact_ref` and `preview`."""
    is_error: bool | None = None
    """True where it failed or was denied."""


AssistantBlock = Annotated[TextBlock | CodeBlock | ArtifactBlock, Field(discriminator="type")]
"""What an assistant's finished output consists of."""

TranscriptBlock = Annotated[
    TextBlock | CodeBlock | ArtifactBlock | ToolUseBlock | ToolResultBlock, Field(discriminator="type")
]
"""What any message consists of."""


class TranscriptMessage(FrozenModel):
    """One turn of one speaker."""

    role: TranscriptRole
    """Who speaks."""
    content: tuple[TranscriptBlock, ...]
    """What they say, in order."""
