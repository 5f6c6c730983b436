"""Where a tool ran, by whom, and under which limits (contract 000; plan, tool execution metadata)."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from codesdk.domain.model import FrozenModel


class ToolExecutedBy(StrEnum):
    """Who ran a tool."""

    CODESDK = "codesdk"
    RUNTIME = "runtime"


class ToolExecutionEnv(StrEnum):
    """Where a tool ran."""

    CODESDK_DOCKER = "codesdk_docker"
    """In a container."""
    CODESDK_HOST = "codesdk_host"
    """As processes of the host (the local driver)."""
    RUNTIME_INTERNAL = "runtime_internal"
    UNKNOWN = "unknown"


class SandboxSummary(FrozenModel):
    """Facts about a sandbox that are safe to publish (contract 000, `ToolSandboxSummary`)."""

    network: bool | None = None
    """Whether the tool had its own network access. Egress through the proxy is reported by `sandbox.egress`."""
    timeout_ms: int | None = Field(default=None, ge=0)
    """Maximum wall time in milliseconds."""
    mounts: tuple[str, ...] | None = None
    """Writable mounts that the tool sees."""
