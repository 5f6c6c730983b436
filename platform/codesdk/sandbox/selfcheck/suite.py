"""All probes, and how they are run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from codesdk.errors import Fault
from codesdk.sandbox.selfcheck import (
    behaviour_ends,
    behaviour_execs,
    behaviour_files,
    escapes_host,
    escapes_kernel,
    escapes_network,
    hostile_floods,
    hostile_vandals,
)
from codesdk.sandbox.selfcheck.bench import Bench
from codesdk.sandbox.selfcheck.exemptions import exemption
from codesdk.sandbox.selfcheck.probe import Group, Outcome, Probe, Status
from codesdk.sandbox.selfcheck.seeing import Unmet, exited, same

GROUPS: dict[Group, tuple[Probe, ...]] = {
    Group.BEHAVIOUR: (*behaviour_execs.PROBES, *behaviour_ends.PROBES, *behaviour_files.PROBES),
    Group.HOSTILE: (*hostile_floods.PROBES, *hostile_vandals.PROBES),
    Group.ESCAPE: (*escapes_kernel.PROBES, *escapes_host.PROBES, *escapes_network.PROBES),
}
PROBES: tuple[Probe, ...] = tuple(probe for group in GROUPS.values() for probe in group)
_GROUP_OF = {probe.name: group for group, probes in GROUPS.items() for probe in probes}


def run(bench: Bench, probes: Sequence[Probe] = PROBES) -> Iterator[Outcome]:
    """Every probe's end, as it comes. What goes wrong in a probe is its failure, and the next one has a new sandbox.

    Raises:
        Fault: no sandbox can be opened at all (engine, image, runtime).
    """
    bench.renew()
    _ = bench.sandbox  # before the first probe: where this fails, nothing can be said of any
    try:
        for probe in probes:
            outcome = check(bench, probe)
            if outcome.status is Status.FAIL:
                bench.renew()
            yield outcome
    finally:
        bench.close()


def check(bench: Bench, probe: Probe) -> Outcome:
    """Run one."""
    group = _GROUP_OF[probe.name]
    reason = exemption(bench.plan.runtime, probe.name)
    if reason:
        return Outcome(name=probe.name, group=group, status=Status.EXEMPT, reason=reason)
    try:
        probe.check(bench)
        if group is Group.HOSTILE:
            same("an exec afterwards", exited(bench.run("echo", "well")).stdout, b"well\n")
    except Unmet as unmet:
        return Outcome(name=probe.name, group=group, status=Status.FAIL, reason=str(unmet))
    except Fault as fault:
        return Outcome(name=probe.name, group=group, status=Status.FAIL, reason=f"{fault.code}: {fault.message}")
    except (ValueError, IndexError) as error:
        reason = f"the sandbox answered what no program of the probe says: {error}"
        return Outcome(name=probe.name, group=group, status=Status.FAIL, reason=reason)
    return Outcome(name=probe.name, group=group, status=Status.PASS, reason=probe.sees)
