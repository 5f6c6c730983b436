"""OAuth metadata that names the trusted issuers to clients that log in (RFC 9728)."""

from __future__ import annotations

from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse

from codesdk.api.access import guarded_router
from codesdk.errors import Fault
from codesdk.mcphost.server.protected_resource import METADATA_PATH

router = guarded_router()


class NoLogins(Fault):
    """This installation accepts no logins. Clients need a session token."""

    code = "NO_LOGINS"
    status = 404


@router.get(METADATA_PATH)
@router.get("/.well-known/oauth-protected-resource")
def read_protected_resource(request: Request) -> JSONResponse:
    """Describe the MCP endpoint as an OAuth protected resource: its URL and trusted issuers.

    Raises:
        NoLogins: no issuer is configured.
    """
    told: dict[str, Any] | None = request.app.state.mcp.resource.metadata(request.scope)
    if told is None:
        raise NoLogins("This installation takes no logins.", advice="Use a session's token.")
    return JSONResponse(told)
