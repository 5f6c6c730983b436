"""The base class of all models."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class FrozenModel(BaseModel):
    """Base of models that cross a process boundary: immutable, and unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")
