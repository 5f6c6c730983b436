"""What can be wrong with an artifact; its record is in `domain.records`."""

from __future__ import annotations

from codesdk.errors import ExitCode, Fault


class ArtifactUnknown(Fault):
    """No such artifact for this tenant."""

    code = "ARTIFACT_UNKNOWN"
    status = 404


class ArtifactDamaged(Fault):
    """The stored bytes are not those that were put in."""

    code = "ARTIFACT_DAMAGED"
    status = 500


class ArtifactsUnavailable(Fault):
    """The artifacts directory is full or cannot be written."""

    code = "ARTIFACTS_UNAVAILABLE"
    retryable = True
    status = 503
    exit_code = ExitCode.UNAVAILABLE
