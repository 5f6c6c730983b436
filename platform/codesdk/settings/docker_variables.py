"""Docker's own variables, which count where none of ours says something."""

from __future__ import annotations

import os
from pathlib import Path


def engine_address() -> str:
    """DOCKER_HOST; empty where it is not set."""
    return os.environ.get("DOCKER_HOST", "")


def certificates() -> Path | None:
    """Where Docker's command would look for certificates; None where nothing tells it to."""
    named, verify = os.environ.get("DOCKER_CERT_PATH"), os.environ.get("DOCKER_TLS_VERIFY")
    if named:
        return Path(named)
    return Path.home() / ".docker" if verify else None
