"""Sessions over HTTP."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Request

from codesdk.api.access import Caller, ServicesDep, guarded_router
from codesdk.bootstrap import Services
from codesdk.domain.model import FrozenModel
from codesdk.sessions import NewSession, Session, SessionSandbox

router = guarded_router()


class Opened(FrozenModel):
    """A session, and what its agent needs to connect."""

    session: Session
    token: str
    """Can't be read again. Valid only for this session's MCP endpoint."""
    mcp_url: str


class SessionList(FrozenModel):
    """Sessions, newest first."""

    sessions: list[Session]


@router.post("/v1/sessions", status_code=201)
def open_session(request: Request, wish: NewSession, caller: Caller, services: ServicesDep) -> Opened:
    """Open a session; its sandbox starts in the background."""
    session, token = services.sessions.open(caller, wish)
    return Opened(session=session, token=token, mcp_url=_mcp_url(request, services))


@router.post("/v1/sessions/{session_id}/tokens", status_code=201)
def issue_token(session_id: str, request: Request, caller: Caller, services: ServicesDep) -> Opened:
    """Issue one more token for an open session of the caller's own; earlier tokens stay valid."""
    session, token = services.sessions.issue_token(caller, session_id)
    return Opened(session=session, token=token, mcp_url=_mcp_url(request, services))


@router.get("/v1/sessions")
def list_sessions(
    caller: Caller, services: ServicesDep, limit: Annotated[int, Query(ge=1, le=500)] = 100
) -> SessionList:
    """List the tenant's sessions, newest first."""
    return SessionList(sessions=services.sessions.listing(caller.tenant_id, limit))


@router.get("/v1/sessions/{session_id}")
def read_session(session_id: str, caller: Caller, services: ServicesDep) -> Session:
    """Return a session."""
    return services.sessions.find(caller.tenant_id, session_id)


@router.delete("/v1/sessions/{session_id}")
def close_session(session_id: str, caller: Caller, services: ServicesDep) -> Session:
    """Close a session: revoke its tokens, deny its waiting calls, remove its sandbox. Its record stays."""
    return services.sessions.close(caller.tenant_id, session_id)


@router.get("/v1/sessions/{session_id}/sandbox")
def read_sandbox(session_id: str, caller: Caller, services: ServicesDep) -> SessionSandbox:
    """Return the state of the session's sandbox."""
    return services.sessions.sandbox(caller.tenant_id, session_id)


@router.post("/v1/sessions/{session_id}/sandbox/stop", status_code=202)
def stop_sandbox(session_id: str, caller: Caller, services: ServicesDep) -> SessionSandbox:
    """Stop the sandbox: end its processes and free its memory. The workspace stays; the next call restarts it."""
    return services.sessions.stop_sandbox(caller.tenant_id, session_id)


@router.post("/v1/sessions/{session_id}/sandbox/start", status_code=202)
def start_sandbox(session_id: str, caller: Caller, services: ServicesDep) -> SessionSandbox:
    """Start a stopped sandbox now."""
    return services.sessions.start_sandbox(caller.tenant_id, session_id)


def _mcp_url(request: Request, services: Services) -> str:
    # Without a public URL, the host name that the caller used also works for its agent.
    base = services.settings.public_url or str(request.base_url).rstrip("/")
    return f"{base}/mcp"
