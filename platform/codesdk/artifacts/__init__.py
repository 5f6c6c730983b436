"""Content-addressed files: payloads too large for an event, and archives that seed workspaces."""

from codesdk.artifacts.artifact import (
    ArtifactCollected,
    ArtifactDamaged,
    ArtifactInUse,
    ArtifactsUnavailable,
    ArtifactTooLarge,
    ArtifactUnknown,
    StoredArtifact,
)
from codesdk.artifacts.garbage_collection import CollectionReport, GarbageCollector
from codesdk.artifacts.service import ArtifactService
from codesdk.domain.records import Artifact

__all__ = [
    "Artifact",
    "ArtifactCollected",
    "ArtifactDamaged",
    "ArtifactInUse",
    "ArtifactService",
    "ArtifactTooLarge",
    "ArtifactUnknown",
    "ArtifactsUnavailable",
    "CollectionReport",
    "GarbageCollector",
    "StoredArtifact",
]
