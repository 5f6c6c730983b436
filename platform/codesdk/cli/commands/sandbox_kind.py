"""The values of `--sandbox`, apart from the code behind them, which is slow to import."""

from __future__ import annotations

from enum import StrEnum


class SandboxKind(StrEnum):
    """Where sandboxes run."""

    DOCKER = "docker"
    LOCAL = "local"
    """Processes of this machine behind bubblewrap."""
    PLAIN = "plain"
    """Processes of this machine without isolation."""
