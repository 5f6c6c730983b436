"""bubblewrap, for local sandboxes: found or installed, and tried."""

from __future__ import annotations

import shutil

from codesdk.provision import debian
from codesdk.provision.command import ProvisionFailed, Say
from codesdk.sandbox.local.confinement import Confinement, Wall, find
from codesdk.sandbox.local.faults import PLAINLY, LocalNotSeparated


def ensure(say: Say) -> Confinement:
    """What this machine can confine with, where that is bubblewrap.

    Raises:
        ProvisionFailed: it cannot be installed. LocalNotSeparated: the kernel does not let it work.
    """
    if shutil.which("bwrap") is None:
        try:
            debian.install(("bubblewrap",), "Local sandboxes are separated by bubblewrap, which is missing", say)
        except ProvisionFailed as failed:
            raise ProvisionFailed(failed.message, advice=f"{failed.advice()} {PLAINLY}".strip()) from failed
    found = find()
    if found.wall is not Wall.BUBBLEWRAP:
        raise LocalNotSeparated(found.why_not)
    return found
