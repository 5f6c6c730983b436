"""References to artifacts, used in events and hashes instead of the bytes."""

from __future__ import annotations

from pydantic import Field

from codesdk.domain.ids import ArtifactId
from codesdk.domain.model import FrozenModel


class ArtifactRef(FrozenModel):
    """A reference to stored bytes. Hashes over a value that refers to bytes cover this object, never a path."""

    artifact_id: ArtifactId
    """The id for `GET /v1/artifacts/{artifact_id}`."""
    content_hash: str | None = None
    """`sha256:<hex>` of the bytes."""
    size: int | None = Field(default=None, ge=0)
    """Size in bytes."""
