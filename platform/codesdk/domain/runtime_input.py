"""The input of a runtime, including the tools offered to it."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

from pydantic import Field

from codesdk.domain.canonical import content_hash
from codesdk.domain.content import TranscriptMessage
from codesdk.domain.model import FrozenModel


class ToolManifestEntry(FrozenModel):
    """One tool that is exposed to the runtime."""

    name: str
    """Dotted name."""
    description: str | None = None
    """What the model is told."""
    input_schema: Any = None
    """JSON Schema, or the runtime's equivalent."""
    schema_hash: str | None = None
    """`sha256:<hex>` of the canonical schema."""


class ToolManifest(FrozenModel):
    """All of them."""

    tools: tuple[ToolManifestEntry, ...]
    """In the order in which they are shown."""

    def hashes(self) -> ToolManifest:
        """Names and schema hashes alone: what events and hashes carry."""
        return ToolManifest(
            tools=tuple(ToolManifestEntry(name=tool.name, schema_hash=tool.schema_hash) for tool in self.tools)
        )


class ContextStrategy(StrEnum):
    """What was done to make the context fit."""

    NONE = "none"
    """Everything is in it."""
    REPLACE_LARGE_RESULTS = "replace_large_results"
    """Large tool results are references with a short preview."""
    DROP_OLDEST = "drop_oldest"
    """The oldest turns are left out too."""


class ContextWindow(FrozenModel):
    """What the runtime's input leaves out (plan, context window management)."""

    strategy: ContextStrategy = ContextStrategy.NONE
    """What was done to make it fit."""
    truncated: bool = False
    """Anything is left out or replaced."""
    omitted_ids: tuple[str, ...] = ()
    """Tasks and tool calls that are not in it."""
    replaced_ids: tuple[str, ...] = ()
    """Tool calls whose result is a reference."""
    limit_tokens: int | None = Field(default=None, ge=0)
    """What the model takes, where that is known."""
    estimated_tokens: int | None = Field(default=None, ge=0)
    """What the input was taken to be."""


class RuntimeInput(FrozenModel):
    """Exactly what the runtime saw; stored as an artifact that `model.input` names."""

    messages: tuple[TranscriptMessage, ...]
    tool_manifest: ToolManifest
    runtime_config: dict[str, Any]
    """The model and every explicit option."""
    context_window: ContextWindow = ContextWindow()

    def input_hash(self) -> str:
        """`sha256:<hex>` over messages, schema hashes, configuration and omissions; descriptions do not count.

        Raises:
            NotCanonical: something in it is not JSON.
        """
        hashed = self.model_copy(update={"tool_manifest": self.tool_manifest.hashes()})
        return content_hash(hashed.model_dump(mode="json", exclude_none=True))


class ImplicitSource(FrozenModel):
    """One thing that a runtime puts into the context on its own."""

    name: str
    """`CLAUDE.md`, `AGENTS.md`, a settings file, a built-in prompt …"""
    precedence: int
    """Lower comes first."""
    content_hash: str | None = None
    """`sha256:<hex>`; never the content."""


class ImplicitSources(FrozenModel):
    """The artifact behind `implicit_sources_ref`: what came in unasked, or that nothing could."""

    disabled: bool
    reason: str | None = None
    """Why and how they are switched off, or why they are not."""
    sources: tuple[ImplicitSource, ...] = ()


CompiledMode = Literal["full", "delta"]
"""Whether the runtime got the whole history or only what is new to it."""
