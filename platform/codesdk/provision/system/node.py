"""Node and npm, which bring real agent CLIs for the acceptance tests."""

from __future__ import annotations

from codesdk.provision.system import debian
from codesdk.provision.system.command import ProgressCallback, which

PACKAGES = ("nodejs", "npm")


def ensure(progress: ProgressCallback) -> str:
    """The npm command: the one on PATH, else Debian's.

    Raises:
        ProvisionFailed: it is missing and cannot be installed here.
    """
    if which("npm") is None or which("node") is None:
        debian.install(PACKAGES, "npm is missing (the acceptance tests install agent CLIs with it)", progress)
    return which("npm") or "npm"
