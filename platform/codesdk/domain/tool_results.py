"""Tool names and results, as every layer passes them on."""

from __future__ import annotations

import re
from typing import Any, Protocol

from pydantic import Field

from codesdk.domain.decisions import Classification
from codesdk.domain.model import FrozenModel

# Lower case words joined by dots, at least two: `workspace.read`. MCP clients limit names to 64 of [A-Za-z0-9_-],
# so a dot becomes an underscore on the wire and a word may not contain one... the registry refuses collisions.
TOOL_NAME = re.compile(r"[a-z][a-z0-9-]*(\.[a-z][a-z0-9_-]*)+")
MAX_TOOL_NAME = 64


def wire_name(name: str) -> str:
    """The name that MCP clients see: `workspace.read` becomes `workspace_read`."""
    return name.replace(".", "_")


class Truncation(FrozenModel):
    """How much of one output stream is in the result."""

    bytes: int = Field(ge=0)
    """Bytes that the tool wrote."""
    shown: int = Field(ge=0)
    """Bytes that the result shows; the rest is in the artifact, or lost where `dropped` says so."""
    dropped: int = Field(default=0, ge=0)
    """Bytes that were kept nowhere, because they passed the profile's limit."""
    gap: int = Field(default=0, ge=0)
    """Offset of the first dropped byte; the artifact has the bytes before it, a mark, and those after what was dropped."""


class ToolResult(FrozenModel):
    """What a tool gave back."""

    text: str
    """For the model. What was cut is marked, with counts."""
    structured: dict[str, Any] | None = None
    """By the tool's output schema, where it has one and the call succeeded."""
    is_error: bool = False
    code: str | None = None
    """Stable reason of an error: `TIMEOUT`, `OOM_KILLED`, `CANCELLED`, `WORKER_LOST`, `NOT_FOUND` …"""
    artifacts: tuple[str, ...] = ()
    """Ids of artifacts that hold what the result only shows in part."""
    stdout: Truncation | None = None
    stderr: Truncation | None = None
    differs: tuple[str, ...] = Field(default=(), exclude_if=lambda told: not told)
    """In what it is not as the preview that people were shown; empty where it is, or where there was none."""


class ToolFacts(Protocol):
    """What policy may know about a tool; the registry's `Tool` is one."""

    @property
    def name(self) -> str:
        """Dotted name."""
        ...

    @property
    def classification(self) -> Classification:
        """From the manifest."""
        ...

    @property
    def schema_hash(self) -> str:
        """`sha256:` of the canonical input schema."""
        ...

    @property
    def enabled(self) -> bool:
        """False: only a bundle with the tool under `enable:` lets it run."""
        ...
