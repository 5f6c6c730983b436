"""Where an implementation of the sandbox port runs what it runs: the words of every call's events."""

from __future__ import annotations

from codesdk.domain.decisions import Frozen

DOCKER, HOST = "codesdk_docker", "codesdk_host"
"""Words of `execution_env`: in a container of an engine, or as processes of the machine itself."""


class Surroundings(Frozen):
    """Where an implementation runs what it runs: told at the start and the end of every call."""

    environment: str = DOCKER
    network: bool = False
    """Tools reach the machine's network: nothing separates them from it."""
    mounts: tuple[str, ...] = ("/workspace",)
    """The writable part of the outside that tools see."""

    def summary(self, timeout_s: float) -> dict[str, object]:
        """The `sandbox` of a call's events."""
        return {"network": self.network, "timeout_ms": int(timeout_s * 1000), "mounts": list(self.mounts)}
