"""What a tenant may have that has no limits of its own; 0 for no limit. The names are those of `domain.quotas`."""

from __future__ import annotations

from pydantic import Field

from codesdk.settings.group import SettingsGroup


class QuotaSettings(SettingsGroup):
    """Limits of each tenant."""

    quota_sessions: int = Field(default=500, ge=0)
    """Open sessions."""
    quota_queued_calls: int = Field(default=1000, ge=0)
    """Calls that wait for a person or for a worker."""
    quota_running_calls: int = Field(default=100, ge=0)
    """More than these stay queued."""
    quota_artifact_bytes: int = Field(default=50 * 1024**3, ge=0)
    quota_api_keys: int = Field(default=1000, ge=0)
    quota_sandbox_memory_bytes: int = Field(default=512 * 1024**3, ge=0)
    """Sum over the profiles of its sandboxes."""
    quota_sandbox_millicpus: int = Field(default=1_024_000, ge=0)
    """Likewise, thousandths of a CPU."""
    quota_workspace_bytes: int = Field(default=2 * 1024**4, ge=0)
    """Likewise, what its workspaces may grow to."""
    quota_egress_bytes_a_day: int = Field(default=0, ge=0)
    """Bytes that pass its sandboxes' proxy, both ways, from midnight to midnight (UTC)."""
