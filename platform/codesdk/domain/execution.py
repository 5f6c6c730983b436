"""Where a tool ran, by whom, and under which limits (contract 000; plan, tool execution metadata)."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from codesdk.domain.model import FrozenModel


class ToolExecutedBy(StrEnum):
    """Who actually ran it."""

    CODESDK = "codesdk"
    RUNTIME = "runtime"


class ToolExecutionEnv(StrEnum):
    """Where it ran."""

    CODESDK_DOCKER = "codesdk_docker"
    """In a container of an engine."""
    CODESDK_HOST = "codesdk_host"
    """As processes of the machine itself (the local driver)."""
    RUNTIME_INTERNAL = "runtime_internal"
    UNKNOWN = "unknown"


class SandboxSummary(FrozenModel):
    """What may be told of a sandbox without harm (contract 000, `ToolSandboxSummary`)."""

    network: bool | None = None
    """Whether the tool reached a network of its own; egress through the proxy is told by `sandbox.egress`."""
    timeout_ms: int | None = Field(default=None, ge=0)
    """Wall time granted, milliseconds."""
    mounts: tuple[str, ...] | None = None
    """The writable part of the outside that the tool sees."""
