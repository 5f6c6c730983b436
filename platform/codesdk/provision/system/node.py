"""Node and npm, which install real agent CLIs for the acceptance tests."""

from __future__ import annotations

from codesdk.provision.system import debian
from codesdk.provision.system.command import ProgressCallback, which

PACKAGES = ("nodejs", "npm")


def ensure(progress: ProgressCallback) -> str:
    """Return the npm command, from PATH or else Debian's package.

    Raises:
        ProvisionFailed: it is missing and can't be installed here.
    """
    if which("npm") is None or which("node") is None:
        debian.install(PACKAGES, "npm is missing (the acceptance tests install agent CLIs with it)", progress)
    return which("npm") or "npm"
