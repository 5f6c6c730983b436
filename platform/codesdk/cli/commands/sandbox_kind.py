"""Words of `--sandbox`. Apart from what they do, which takes long to import."""

from __future__ import annotations

from enum import StrEnum


class SandboxKind(StrEnum):
    """Where sandboxes run."""

    DOCKER = "docker"
    LOCAL = "local"
    """Processes of this machine behind bubblewrap."""
    PLAIN = "plain"
    """Processes of this machine without any wall."""
