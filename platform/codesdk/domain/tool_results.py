"""Tool names and results, as every layer passes them on."""

from __future__ import annotations

import re
from typing import Any, Protocol

from pydantic import Field

from codesdk.domain.decisions import Classification
from codesdk.domain.model import FrozenModel

# Lower-case words joined by dots, at least two: `workspace.read`. MCP clients limit names to 64 of [A-Za-z0-9_-], so
# dots become underscores on the wire. The registry rejects collisions.
TOOL_NAME = re.compile(r"[a-z][a-z0-9-]*(\.[a-z][a-z0-9_-]*)+")
MAX_TOOL_NAME = 64


def wire_name(name: str) -> str:
    """Return the name for MCP clients: `workspace.read` becomes `workspace_read`."""
    return name.replace(".", "_")


class Truncation(FrozenModel):
    """How much of an output stream is in the result."""

    bytes: int = Field(ge=0)
    """Bytes that the tool wrote."""
    shown: int = Field(ge=0)
    """Bytes that the result shows. The rest is in the artifact, except `dropped` bytes."""
    dropped: int = Field(default=0, ge=0)
    """Bytes discarded because they exceeded the profile's limit."""
    gap: int = Field(default=0, ge=0)
    """Offset of the first dropped byte. The artifact has the bytes before it, a marker, and the bytes after the gap."""


class ToolResult(FrozenModel):
    """A tool's result."""

    text: str
    """Text for the model. Omissions are marked, with counts."""
    structured: dict[str, Any] | None = None
    """Structured result, if the tool has an output schema and the call succeeded."""
    is_error: bool = False
    code: str | None = None
    """Stable reason of an error: `TIMEOUT`, `OOM_KILLED`, `CANCELLED`, `WORKER_LOST`, `NOT_FOUND` …"""
    artifacts: tuple[str, ...] = ()
    """Ids of artifacts with the complete content that the result shows only in part."""
    stdout: Truncation | None = None
    stderr: Truncation | None = None
    differs: tuple[str, ...] = Field(default=(), exclude_if=lambda told: not told)
    """How it differs from the approved preview. Empty if it doesn't, or if there was none."""


class ToolFacts(Protocol):
    """What policy can see of a tool; implemented by the registry's `Tool`."""

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
        """False: the tool runs only if a bundle lists it under `enable:`."""
        ...
