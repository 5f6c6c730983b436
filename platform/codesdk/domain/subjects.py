"""The subject of a call: tenant, principal and session."""

from __future__ import annotations

from codesdk.domain.decisions import PermissionMode
from codesdk.domain.ids import PrincipalId, SessionId, TenantId
from codesdk.domain.model import FrozenModel


class Subject(FrozenModel):
    """The calling session, and the person or program that it belongs to."""

    tenant_id: TenantId
    principal_id: PrincipalId
    session_id: SessionId
    permission_mode: PermissionMode = PermissionMode.AUTO
    runtime: str = "mcp-client"
    """Name of the runtime that drives the session; `mcp-client` for a client without one of our adapters."""
    roles: tuple[str, ...] = ()
    labels: dict[str, str] = {}
    """The session's labels, set when it was created."""
    policy_hash: str | None = None
    """Hash of the session's own rules, if it has any."""
