"""References to artifacts, used in events and hashes instead of the bytes."""

from __future__ import annotations

from pydantic import Field

from codesdk.domain.ids import ArtifactId
from codesdk.domain.model import FrozenModel


class ArtifactRef(FrozenModel):
    """Names stored bytes. A hash over a value that refers to bytes is over this object, never over a path."""

    artifact_id: ArtifactId
    """What `GET /v1/artifacts/{artifact_id}` takes."""
    content_hash: str | None = None
    """`sha256:<hex>` of the bytes."""
    size: int | None = Field(default=None, ge=0)
    """Bytes."""
