"""The warning shown before local sandboxes are used; the same everywhere."""

from __future__ import annotations

from codesdk.sandbox.local.cgroups import Controller
from codesdk.sandbox.local.confinement import Confinement, Isolation

CAPPED_RESOURCES = {"the memory": Controller.MEMORY, "the CPU time": Controller.CPU, "the processes": Controller.PIDS}


def local_sandbox_warning(confinement: Confinement) -> tuple[str, ...]:
    """Return the lines of the warning, most severe first."""
    lines = ["LOCAL SANDBOX: tools run as processes of THIS machine, not in containers."]
    if confinement.isolation is Isolation.NONE:
        lines.append(f"NO ISOLATION of network, files or processes: {confinement.why_not}.")
        lines.append("Tools reach the network, and read and write whatever their user may.")
    else:
        lines.append("bubblewrap separates network, files and processes. It shares this machine's kernel and programs.")
    if not confinement.apart:
        what = "of its own sandbox" if confinement.isolation is Isolation.BUBBLEWRAP else "and read the operator's key"
        lines.append(f"Tools run as YOUR user: a hostile one can take over the runner {what}.")
    missing = [name for name, control in CAPPED_RESOURCES.items() if control not in confinement.groups.parents]
    if missing:
        lines.append(f"Nothing limits {' or '.join(missing)} of a sandbox as a whole: {confinement.groups.why_not}.")
    lines.append("Nothing limits the disk that a large workspace takes. Do not run what you do not trust.")
    return tuple(lines)
