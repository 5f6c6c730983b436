"""An error as a value, for storage and transport."""

from __future__ import annotations

from typing import Any

from codesdk.domain.artifact_refs import ArtifactRef
from codesdk.domain.model import FrozenModel


class StructuredError(FrozenModel):
    """An error that programs can branch on and people can act on (plan, error model)."""

    code: str
    """Stable, upper snake case: `CONTEXT_TOO_LARGE`, `STORAGE_UNAVAILABLE` … New codes may be added."""
    message: str
    """One sentence; never a secret."""
    retryable: bool
    """Whether the same request may succeed later, unchanged."""
    advice: str | None = None
    """What to do next, if anything."""
    runtime: str | None = None
    """Name of the runtime that failed; missing if CodeSDK failed."""
    raw: Any = None
    """The runtime's own error, bounded and redacted."""
    raw_ref: ArtifactRef | None = None
    """The runtime's own error as an artifact, if it is large."""
