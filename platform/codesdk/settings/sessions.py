"""How sessions live, wait and ask people."""

from __future__ import annotations

from pydantic import Field

from codesdk.settings.group import SettingsGroup


class SessionSettings(SettingsGroup):
    """What holds for every session."""

    session_ttl_s: float = Field(default=24 * 3600.0, gt=0)
    """Seconds that a session token lives."""
    poll_s: float = Field(default=0.5, gt=0)
    """Seconds between looks at the database where no hint came."""
    wait_s: float = Field(default=50.0, gt=0)
    """Seconds that an MCP call waits for a person before it answers that it is still waiting: below 60 s, the
    shortest default limit of the agent CLIs that we measured (OpenCode, Kimi)."""
    asks_per_minute: int = Field(default=120, ge=0, le=10_000)
    """Calls of one session that may ask people in any minute; more are denied (`TOO_MANY_QUESTIONS`). 0: no limit. A person
    answers one in some seconds; agents with parallel calls were seen to make ten at once."""
    asks_per_minute_of_tenant: int = Field(default=1200, ge=0, le=10_000)
    """The same of all sessions of a tenant."""
    asks_waiting: int = Field(default=100, ge=0)
    """Calls of one session that may wait for people at once, so that it does not take the whole `quota_queued_calls`."""
    trust_clients: bool = False
    """Whether an approver may answer through the agent's own client (elicitation). Such a client could answer by itself;
    it votes as the session's principal, and as nobody else."""
    read_only_hints: bool = True
    """Whether MCP clients are told which tools only read. Many run such tools without asking their user."""
    allow_yolo: bool = False
    """Whether a tenant that is made may have sessions in the mode `yolo`; `codesdk tenants allow-yolo` changes it later."""
