"""The input of a runtime, including the tools offered to it."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

from pydantic import Field

from codesdk.domain.canonical import content_hash
from codesdk.domain.content import TranscriptMessage
from codesdk.domain.model import FrozenModel


class ToolManifestEntry(FrozenModel):
    """A tool that is offered to the runtime."""

    name: str
    """Dotted name."""
    description: str | None = None
    """The description for the model."""
    input_schema: Any = None
    """JSON Schema, or the runtime's equivalent."""
    schema_hash: str | None = None
    """`sha256:<hex>` of the canonical schema."""


class ToolManifest(FrozenModel):
    """The tools that are offered to the runtime."""

    tools: tuple[ToolManifestEntry, ...]
    """The tools, in the order in which they are shown."""

    def hashes(self) -> ToolManifest:
        """Return only names and schema hashes, for events and hashes."""
        return ToolManifest(
            tools=tuple(ToolManifestEntry(name=tool.name, schema_hash=tool.schema_hash) for tool in self.tools)
        )


class ContextStrategy(StrEnum):
    """How the context was made to fit."""

    NONE = "none"
    """Nothing was left out."""
    REPLACE_LARGE_RESULTS = "replace_large_results"
    """Large tool results were replaced by references with a short preview."""
    DROP_OLDEST = "drop_oldest"
    """The oldest turns were also left out."""


class ContextWindow(FrozenModel):
    """What the runtime's input leaves out (plan, context window management)."""

    strategy: ContextStrategy = ContextStrategy.NONE
    """How the context was made to fit."""
    truncated: bool = False
    """Whether anything was left out or replaced."""
    omitted_ids: tuple[str, ...] = ()
    """Tasks and tool calls that were left out."""
    replaced_ids: tuple[str, ...] = ()
    """Tool calls whose result was replaced by a reference."""
    limit_tokens: int | None = Field(default=None, ge=0)
    """The model's context window, if known."""
    estimated_tokens: int | None = Field(default=None, ge=0)
    """Estimated size of the input."""


class RuntimeInput(FrozenModel):
    """Exactly what the runtime received; stored as the artifact that `model.input` names."""

    messages: tuple[TranscriptMessage, ...]
    tool_manifest: ToolManifest
    runtime_config: dict[str, Any]
    """The model and all explicit options."""
    context_window: ContextWindow = ContextWindow()

    def input_hash(self) -> str:
        """Return `sha256:<hex>` over messages, schema hashes, configuration and omissions, without tool descriptions.

        Raises:
            NotCanonical: something in it is not JSON.
        """
        hashed = self.model_copy(update={"tool_manifest": self.tool_manifest.hashes()})
        return content_hash(hashed.model_dump(mode="json", exclude_none=True))


class ImplicitSource(FrozenModel):
    """A source that a runtime adds to the context on its own."""

    name: str
    """`CLAUDE.md`, `AGENTS.md`, a settings file, a built-in prompt …"""
    precedence: int
    """Lower comes first."""
    content_hash: str | None = None
    """`sha256:<hex>`; never the content."""


class ImplicitSources(FrozenModel):
    """The artifact behind `implicit_sources_ref`: what the runtime added on its own, or that it can't."""

    disabled: bool
    reason: str | None = None
    """Why and how they are disabled, or why not."""
    sources: tuple[ImplicitSource, ...] = ()


CompiledMode = Literal["full", "delta"]
"""Whether the runtime got the whole history or only what is new to it."""
