"""The stored record of an artifact, and the faults. The public record is in `domain.records`."""

from __future__ import annotations

from pydantic import Field

from codesdk.domain.records import Artifact
from codesdk.errors import Conflict, ExitCode, Fault, NotFound, Unavailable


class ArtifactUnknown(NotFound):
    """No such artifact for this tenant."""

    code = "ARTIFACT_UNKNOWN"


class ArtifactDamaged(Fault):
    """The stored bytes differ from those that were put, or are missing."""

    code = "ARTIFACT_DAMAGED"
    status = 500
    exit_code = ExitCode.FAILED


class ArtifactTooLarge(Fault):
    """The artifact exceeds the size limit."""

    code = "ARTIFACT_TOO_LARGE"
    status = 413
    exit_code = ExitCode.USAGE


class ArtifactInUse(Conflict):
    """An open session still needs the artifact."""

    code = "ARTIFACT_IN_USE"


class ArtifactCollected(Fault):
    """The bytes waited too long for their record and were garbage-collected."""

    code = "ARTIFACT_COLLECTED"
    retryable = True
    status = 503


class ArtifactsUnavailable(Unavailable):
    """The blob store is full, not writable or doesn't answer."""

    code = "ARTIFACTS_UNAVAILABLE"


class StoredArtifact(Artifact):
    """An artifact whose bytes are stored. They are found by `blob_key`, never by a name from outside."""

    blob_key: str = Field(exclude=True, repr=False)
    """Internal; never part of a response."""

    def public(self) -> Artifact:
        """Return the public record, without `blob_key`."""
        return Artifact.model_validate(self.model_dump())
