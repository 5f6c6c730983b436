"""How a server stands, for the people who run the installation."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from codesdk.domain.decisions import FrozenModel
from codesdk.domain.ids import SessionId, TenantId


class ServerState(StrEnum):
    """What it does."""

    STARTING = "starting"
    """It is being started, for a call that waits for it."""
    RUNNING = "running"
    """It answers. One that is elsewhere: it did when it was spoken to last."""
    ENDED = "ended"
    """It did not start, or ended by itself; the next call starts it again, after a pause where it fails in a row."""


class ServerStatus(FrozenModel):
    """One server of a worker."""

    source: str
    """The source's name."""
    session_id: SessionId | None = None
    """The session whose calls it gets; None where it is shared."""
    tenant_id: TenantId | None = None
    """Whose session that is."""
    state: ServerState
    since: float | None = None
    """Seconds since the epoch, when it was started last; None while it has not been."""
    restarts: int = Field(default=0, ge=0)
    """How often it was started again since the first call for it; forgotten when it rests, or its worker ends."""
    reason: str = ""
    """Why it ended last, in words."""


class ServerRecord(ServerStatus):
    """One server of the installation, as its worker told last: some seconds ago at most, while that worker lives."""

    host: str
    """The host's name."""
