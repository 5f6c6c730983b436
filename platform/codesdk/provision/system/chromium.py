"""Chromium, in which the approval page is tested."""

from __future__ import annotations

from codesdk.provision.system import debian
from codesdk.provision.system.command import ProgressCallback, which

_NAMES = ("chromium", "chromium-browser", "google-chrome")


def ensure(progress: ProgressCallback) -> str:
    """The browser's command: the one on PATH, else Debian's.

    Raises:
        ProvisionFailed: it is missing and cannot be installed here.
    """
    found = next((path for name in _NAMES if (path := which(name)) is not None), None)
    if found is None:
        debian.install(
            ("chromium", "fonts-dejavu-core"), "Chromium is missing (the approval page is tested in it)", progress
        )
    return found or which("chromium") or "chromium"
