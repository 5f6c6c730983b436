"""Words of `--sandbox`. Apart from what they do, which takes long to import."""

from __future__ import annotations

from enum import StrEnum


class SandboxKind(StrEnum):
    """Where sandboxes run."""

    DOCKER = "docker"
    LOCAL = "local"
