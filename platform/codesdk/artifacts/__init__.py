"""Content-addressed files: what is too large for an event, and what a workspace starts from."""

from codesdk.artifacts.artifact import Artifact, ArtifactDamaged, ArtifactsUnavailable, ArtifactUnknown
from codesdk.artifacts.directory import Artifacts

__all__ = ["Artifact", "ArtifactDamaged", "ArtifactUnknown", "Artifacts", "ArtifactsUnavailable"]
