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
from codesdk.sandbox.selfcheck.exemptions import exemption
from codesdk.sandbox.selfcheck.expectations import ProbeFailed, expect_equal, expect_exit
from codesdk.sandbox.selfcheck.probe import Group, Outcome, Probe, Status

GROUPS: dict[Group, tuple[Probe, ...]] = {
    Group.BEHAVIOUR: (*behaviour_exec_io.PROBES, *behaviour_exec_exit.PROBES, *behaviour_files.PROBES),
    Group.HOSTILE: (*hostile_exhaustion.PROBES, *hostile_destruction.PROBES),
    Group.ESCAPE: (*escapes_kernel.PROBES, *escapes_host.PROBES, *escapes_network.PROBES),
}
PROBES: tuple[Probe, ...] = tuple(probe for group in GROUPS.values() for probe in group)
_GROUP_OF = {probe.name: group for group, probes in GROUPS.items() for probe in probes}


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
    reason = exemption(context.plan.runtime, probe.name)
    if reason:
        return Outcome(name=probe.name, group=group, status=Status.EXEMPT, reason=reason)
    try:
        probe.check(context)
        if group is Group.HOSTILE:
            expect_equal("an exec afterwards", expect_exit(context.run("echo", "well")).stdout, b"well\n")
    except ProbeFailed as unmet:
        return Outcome(name=probe.name, group=group, status=Status.FAIL, reason=str(unmet))
    except Fault as fault:
        return Outcome(name=probe.name, group=group, status=Status.FAIL, reason=f"{fault.code}: {fault.message}")
    except (ValueError, IndexError) as error:
        reason = f"the sandbox answered what no program of the probe says: {error}"
        return Outcome(name=probe.name, group=group, status=Status.FAIL, reason=reason)
    return Outcome(name=probe.name, group=group, status=Status.PASS, reason=probe.sees)
