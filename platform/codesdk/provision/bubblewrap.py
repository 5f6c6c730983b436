"""bubblewrap, for local sandboxes: found or installed, and tried."""

from __future__ import annotations

import shutil

from codesdk.provision import debian
from codesdk.provision.command import ProvisionFailed, Say
from codesdk.sandbox.local.confinement import Confinement, Wall, find


def ensure(say: Say) -> Confinement:
    """What this machine can confine with, where that is bubblewrap.

    Raises:
        ProvisionFailed: it cannot be installed, or the kernel does not let it work.
    """
    if shutil.which("bwrap") is None:
        debian.install(("bubblewrap",), "Local sandboxes are separated by bubblewrap, which is missing", say)
    found = find()
    if found.wall is not Wall.BUBBLEWRAP:
        raise ProvisionFailed(
            f"Local sandboxes cannot be separated here: {found.why_not}.",
            advice="Allow unprivileged user namespaces (kernel.unprivileged_userns_clone, AppArmor), or run as root.",
        )
    return found
