"""An error as a value, for storage and transport."""

from __future__ import annotations

from typing import Any

from codesdk.domain.artifact_refs import ArtifactRef
from codesdk.domain.model import FrozenModel
from codesdk.errors import Fault


class StructuredError(FrozenModel):
    """What went wrong, for a program to branch on and for a person to act on (plan, error model)."""

    code: str
    """Stable, upper snake case: `CONTEXT_TOO_LARGE`, `STORAGE_UNAVAILABLE` …; more may come."""
    message: str
    """One sentence; never a secret."""
    retryable: bool
    """The same request may succeed later with nothing changed by the caller."""
    advice: str | None = None
    """What to do next, where there is something."""
    runtime: str | None = None
    """Name of the runtime that failed; missing where CodeSDK itself did."""
    raw: Any = None
    """What the runtime said, bounded and redacted."""
    raw_ref: ArtifactRef | None = None
    """The same as an artifact, where it is large."""


def error_of(fault: Fault, runtime: str | None = None, raw: Any = None) -> StructuredError:
    """A fault as a value."""
    return StructuredError(
        code=fault.code,
        message=fault.message,
        retryable=fault.retryable,
        advice=fault.advice() or None,
        runtime=runtime,
        raw=raw,
    )
