"""Lists and runs all probes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from codesdk.errors import Fault
from codesdk.sandbox.selfcheck import (
    behaviour_exec_exit,
    behaviour_exec_io,
    behaviour_files,
    escapes_host,
    escapes_kernel,
    escapes_network,
    hostile_destruction,
    hostile_exhaustion,
)
from codesdk.sandbox.selfcheck.context import ProbeContext
from codesdk.sandbox.selfcheck.expectations import ProbeExempt, ProbeFailed
from codesdk.sandbox.selfcheck.probe import Group, Outcome, Probe, Status

GROUPS: dict[Group, tuple[Probe, ...]] = {
    Group.BEHAVIOUR: (*behaviour_exec_io.PROBES, *behaviour_exec_exit.PROBES, *behaviour_files.PROBES),
    Group.HOSTILE: (*hostile_exhaustion.PROBES, *hostile_destruction.PROBES),
    Group.ESCAPE: (*escapes_kernel.PROBES, *escapes_host.PROBES, *escapes_network.PROBES),
}
PROBES: tuple[Probe, ...] = tuple(probe for group in GROUPS.values() for probe in group)
_GROUP_OF = {probe.name: group for group, probes in GROUPS.items() for probe in probes}

_OWN_KERNEL = "gVisor's own kernel answers system calls, inside the sandbox; the engine's filter is not applied"
_OWN_PROC = "gVisor's /proc does not show it"
_WHOLE = (
    "memory and processes are those of gVisor's own process: where they run out, the whole sandbox ends, and says so"
)

EXEMPT: dict[str, dict[str, str]] = {
    "runsc": {
        "end-memory": _WHOLE,
        "hostile-memory-children": _WHOLE,
        "hostile-memory-mapped": _WHOLE,
        "hostile-pipes": _WHOLE,
        "hostile-fork-bomb": _WHOLE,
        "hostile-shell-fork-bomb": _WHOLE,
        "hostile-inodes": "gVisor's tmpfs counts bytes and not files; the sandbox's memory bounds them",
        "hostile-oom-score": "a score may be set and is not obeyed: for memory the sandbox ends as a whole",
        "escape-denied-keys": _OWN_KERNEL,
        "escape-denied-programs-in-kernel": _OWN_KERNEL,
        "escape-denied-other-processes": _OWN_KERNEL,
        "escape-denied-namespaces": _OWN_KERNEL,
        "escape-denied-io-uring": _OWN_KERNEL,
        "escape-denied-file-handles": _OWN_KERNEL,
        "escape-denied-memory-placement": _OWN_KERNEL,
        "escape-denied-aio": _OWN_KERNEL,
        "escape-namespaces": "gVisor has namespaces of its own; those of the host are out of reach of any call",
        "escape-socket-families": _OWN_KERNEL,
        "escape-personality": _OWN_KERNEL,
        "escape-32-bit-entry": _OWN_KERNEL,
        "escape-filter": _OWN_PROC,
        "escape-no-new-privileges": _OWN_PROC,
        "escape-limits": "gVisor shows no cgroup inside; the engine's word stands for the limits",
        "escape-read-only": "gVisor's /proc is its own and no mount of the engine's; that it cannot be written is tried",
        "escape-dev": "/dev/fuse and /dev/net are gVisor's own and lead to nothing of the host's",
        "escape-ipc": "gVisor has no /proc/sysvipc",
        "escape-other-exec": "gVisor has no Landlock. It refuses tracing and writing to another's memory, and shows environments to all",
        "escape-runner-seen": "gVisor shows environment and memory map of every process to all; nothing secret is in ours",
    }
}
"""By runtime, the probes that it can't run, with reasons. All other probes must pass."""


def run(context: ProbeContext, probes: Sequence[Probe] = PROBES) -> Iterator[Outcome]:
    """Run the probes and yield each result. A failed probe doesn't stop the run; the next one gets a new sandbox.

    Raises:
        Fault: no sandbox can be opened at all (engine, image, runtime).
    """
    context.renew()
    _ = context.sandbox  # open it before the first probe: if this fails, no probe can run
    try:
        for probe in probes:
            outcome = check(context, probe)
            if outcome.status is Status.FAIL:
                context.renew()
            yield outcome
    finally:
        context.close()


def check(context: ProbeContext, probe: Probe) -> Outcome:
    """Run one probe."""
    group = _GROUP_OF[probe.name]
    if reason := EXEMPT.get(context.plan.runtime, {}).get(probe.name):
        return Outcome(name=probe.name, group=group, status=Status.EXEMPT, reason=reason)
    try:
        probe.check(context)
        if group is Group.HOSTILE:
            context.expect_usable()
    except ProbeExempt as exempt:
        return Outcome(name=probe.name, group=group, status=Status.EXEMPT, reason=str(exempt))
    except ProbeFailed as unmet:
        return Outcome(name=probe.name, group=group, status=Status.FAIL, reason=str(unmet))
    except Fault as fault:
        return Outcome(name=probe.name, group=group, status=Status.FAIL, reason=f"{fault.code}: {fault.message}")
    except (ValueError, IndexError) as error:
        reason = f"unexpected output of the probe's program: {error}"
        return Outcome(name=probe.name, group=group, status=Status.FAIL, reason=reason)
    return Outcome(name=probe.name, group=group, status=Status.PASS, reason=probe.statement)
