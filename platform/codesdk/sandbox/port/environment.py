"""Where an implementation of the sandbox port runs what it runs: the words of every call's events."""

from __future__ import annotations

from codesdk.domain.decisions import FrozenModel
from codesdk.domain.execution import SandboxSummary, ToolExecutionEnv

DOCKER, HOST = ToolExecutionEnv.CODESDK_DOCKER.value, ToolExecutionEnv.CODESDK_HOST.value
"""Words of `execution_env`: in a container of an engine, or as processes of the machine itself."""


class ExecutionEnvironment(FrozenModel):
    """Where an implementation runs what it runs: told at the start and the end of every call."""

    environment: str = DOCKER
    network: bool = False
    """Tools reach the machine's network: nothing separates them from it."""
    mounts: tuple[str, ...] = ("/workspace",)
    """The writable part of the outside that tools see."""

    def summary(self, timeout_s: float) -> SandboxSummary:
        """The `sandbox` of a call's events."""
        return SandboxSummary(network=self.network, timeout_ms=int(timeout_s * 1000), mounts=self.mounts)
