"""The subject of a call: tenant, principal and session."""

from __future__ import annotations

from codesdk.domain.decisions import PermissionMode
from codesdk.domain.ids import PrincipalId, SessionId, TenantId
from codesdk.domain.model import FrozenModel


class Subject(FrozenModel):
    """The session that calls, and the person or program that it belongs to."""

    tenant_id: TenantId
    principal_id: PrincipalId
    session_id: SessionId
    permission_mode: PermissionMode = PermissionMode.AUTO
    runtime: str = "mcp-client"
    """Name of the runtime that drives the session; `mcp-client` where it is a client that is none of our adapters."""
    roles: tuple[str, ...] = ()
    labels: dict[str, str] = {}
    """The session's labels, set when it was created."""
    policy_hash: str | None = None
    """Of the rules that the session was opened with; none where it has none of its own."""
