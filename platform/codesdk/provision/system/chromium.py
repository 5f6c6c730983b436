"""Chromium, for tests of the approval page."""

from __future__ import annotations

from codesdk.provision.system import debian
from codesdk.provision.system.command import ProgressCallback, which

_NAMES = ("chromium", "chromium-browser", "google-chrome")


def ensure(progress: ProgressCallback) -> str:
    """Return the browser's command, from PATH or else Debian's package.

    Raises:
        ProvisionFailed: it is missing and can't be installed here.
    """
    found = next((path for name in _NAMES if (path := which(name)) is not None), None)
    if found is None:
        debian.install(
            ("chromium", "fonts-dejavu-core"), "Chromium is missing (the approval page is tested in it)", progress
        )
    return found or which("chromium") or "chromium"
