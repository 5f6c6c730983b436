"""Content-addressed files: what is too large for an event, and what a workspace starts from."""

from codesdk.artifacts.artifact import (
    ArtifactCollected,
    ArtifactDamaged,
    ArtifactInUse,
    ArtifactsUnavailable,
    ArtifactTooLarge,
    ArtifactUnknown,
    StoredArtifact,
)
from codesdk.artifacts.collection import Collected, Collector
from codesdk.artifacts.desk import Artifacts
from codesdk.domain.records import Artifact

__all__ = [
    "Artifact",
    "ArtifactCollected",
    "ArtifactDamaged",
    "ArtifactInUse",
    "ArtifactTooLarge",
    "ArtifactUnknown",
    "Artifacts",
    "ArtifactsUnavailable",
    "Collected",
    "Collector",
    "StoredArtifact",
]
