"""An artifact's record and its faults."""

from __future__ import annotations

from pydantic import Field

from codesdk.domain.decisions import Frozen
from codesdk.domain.ids import ArtifactId, SessionId, TenantId
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


class Artifact(Frozen):
    """One stored file. The bytes are found by `content_hash`, never by a path from outside."""

    id: ArtifactId
    tenant_id: TenantId
    session_id: SessionId | None
    content_hash: str
    size: int = Field(ge=0)
    content_type: str
    name: str
