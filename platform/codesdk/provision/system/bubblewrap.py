"""Finds or installs bubblewrap for local sandboxes, and checks that it works."""

from __future__ import annotations

import shutil

from codesdk.provision.system import debian
from codesdk.provision.system.command import ProgressCallback, ProvisionFailed
from codesdk.sandbox.local.confinement import Confinement, Isolation, detect_confinement
from codesdk.sandbox.local.faults import NO_ISOLATION_ADVICE, LocalNotSeparated


def ensure(progress: ProgressCallback) -> Confinement:
    """Return this machine's confinement with bubblewrap.

    Raises:
        ProvisionFailed: it can't be installed. LocalNotSeparated: the kernel does not let it work.
    """
    if shutil.which("bwrap") is None:
        try:
            debian.install(("bubblewrap",), "Local sandboxes are separated by bubblewrap, which is missing", progress)
        except ProvisionFailed as failed:
            raise ProvisionFailed(failed.message, advice=f"{failed.advice()} {NO_ISOLATION_ADVICE}".strip()) from failed
    found = detect_confinement()
    if found.isolation is not Isolation.BUBBLEWRAP:
        raise LocalNotSeparated(found.why_not)
    return found
