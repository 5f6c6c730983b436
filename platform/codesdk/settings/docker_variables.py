"""Docker's own environment variables: the defaults where no CODESDK_DOCKER_* setting is given."""

from __future__ import annotations

import os
from pathlib import Path


def engine_address() -> str:
    """DOCKER_HOST; empty if it isn't set."""
    return os.environ.get("DOCKER_HOST", "")


def certificates() -> Path | None:
    """The directory where the docker command looks for certificates; None without DOCKER_CERT_PATH and DOCKER_TLS_VERIFY."""
    named, verify = os.environ.get("DOCKER_CERT_PATH"), os.environ.get("DOCKER_TLS_VERIFY")
    if named:
        return Path(named)
    return Path.home() / ".docker" if verify else None
