"""A session's record and its faults."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from codesdk.domain.decisions import Frozen, PermissionMode
from codesdk.domain.ids import ArtifactId, HostId, PrincipalId, SessionId, TenantId
from codesdk.errors import ExitCode, Fault


class NoHost(Fault):
    """No worker has registered a host that has the image."""

    code = "NO_HOST"
    retryable = True
    status = 503
    exit_code = ExitCode.UNAVAILABLE


class SessionUnknown(Fault):
    """No such session for this tenant."""

    code = "SESSION_UNKNOWN"
    status = 404
    exit_code = ExitCode.FAILED


Label = Annotated[str, Field(max_length=200)]
"""A label's name or value; the bound also refuses what is no Unicode text, which no database takes."""


class NewSession(Frozen):
    """What a caller chooses."""

    permission_mode: PermissionMode = PermissionMode.AUTO
    labels: dict[Label, Label] = Field(default={}, max_length=32)
    profile: str = Field(default="default", max_length=40)
    """Which limits its sandbox has: the name of a profile file."""
    seed_artifact: ArtifactId | None = None
    """An archive (tar, gz or not) that the workspace starts from."""
    runtime: str = Field(default="mcp-client", max_length=40)


class Session(Frozen):
    """One agent's work: a workspace, a log, a token."""

    id: SessionId
    tenant_id: TenantId
    principal_id: PrincipalId
    host_id: HostId
    state: Literal["open", "closed"]
    runtime: str
    permission_mode: PermissionMode
    labels: dict[str, str]
    image: str
    last_seq: int
    created_at: float
    closed_at: float | None = None
