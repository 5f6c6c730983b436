"""Status of an MCP server, for operators."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from codesdk.domain.ids import SessionId, TenantId
from codesdk.domain.model import FrozenModel


class ServerState(StrEnum):
    """State of a server."""

    STARTING = "starting"
    """Being started for a waiting call."""
    RUNNING = "running"
    """Running. A remote server: it answered the last request."""
    ENDED = "ended"
    """Failed to start, or ended; the next call starts it again, with backoff."""


class ServerStatus(FrozenModel):
    """One server of a worker."""

    source: str
    """The source's name."""
    session_id: SessionId | None = None
    """The session it serves; None if it is shared."""
    tenant_id: TenantId | None = None
    """The session's tenant."""
    state: ServerState
    since: float | None = None
    """Last start, seconds since the epoch; None before the first."""
    restarts: int = Field(default=0, ge=0)
    """Restarts since its first call; reset when it is stopped as idle or its worker ends."""
    reason: str = ""
    """Why it last ended."""


class ServerRecord(ServerStatus):
    """A server of the installation, as its worker last reported it, at most seconds ago if the worker is alive."""

    host: str
    """The host's name."""
