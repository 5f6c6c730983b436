"""The stored record of an artifact, and the faults. The public record is in `domain.records`."""

from __future__ import annotations

from pydantic import Field

from codesdk.domain.records import Artifact
from codesdk.errors import ExitCode, Fault


class ArtifactUnknown(Fault):
    """No such artifact for this tenant."""

    code = "ARTIFACT_UNKNOWN"
    status = 404
    exit_code = ExitCode.FAILED


class ArtifactDamaged(Fault):
    """The stored bytes are not those that were put in."""

    code = "ARTIFACT_DAMAGED"
    status = 500
    exit_code = ExitCode.FAILED


class ArtifactTooLarge(Fault):
    """More bytes than one artifact may have."""

    code = "ARTIFACT_TOO_LARGE"
    status = 413
    exit_code = ExitCode.USAGE


class ArtifactInUse(Fault):
    """Something that still runs needs it."""

    code = "ARTIFACT_IN_USE"
    status = 409
    exit_code = ExitCode.FAILED


class ArtifactCollected(Fault):
    """Its bytes were held for too long without a record, and were collected."""

    code = "ARTIFACT_COLLECTED"
    retryable = True
    status = 503


class ArtifactsUnavailable(Fault):
    """The place where bytes are kept is full, cannot be written or does not answer."""

    code = "ARTIFACTS_UNAVAILABLE"
    retryable = True
    status = 503
    exit_code = ExitCode.UNAVAILABLE


class StoredArtifact(Artifact):
    """An artifact whose bytes are kept. They are found by `blob_key`, never by a name from outside."""

    blob_key: str = Field(exclude=True, repr=False)
    """Known inside only."""

    def public(self) -> Artifact:
        """What others see of it."""
        return Artifact.model_validate(self.model_dump())
