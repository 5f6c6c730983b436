"""Content-addressed files: what is too large for an event, and what a workspace starts from."""

from codesdk.artifacts.artifact import ArtifactDamaged, ArtifactsUnavailable, ArtifactUnknown
from codesdk.artifacts.directory import Artifacts
from codesdk.domain.records import Artifact

__all__ = ["Artifact", "ArtifactDamaged", "ArtifactUnknown", "Artifacts", "ArtifactsUnavailable"]
