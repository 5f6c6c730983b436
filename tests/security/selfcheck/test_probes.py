"""Every probe of `codesdk sandbox selfcheck`, on the default runtime."""

from __future__ import annotations

import pytest

from codesdk.sandbox.selfcheck import PROBES, Status, check
from codesdk.sandbox.selfcheck.suite import GROUPS

pytestmark = pytest.mark.engine


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.name)
def test_what_must_be_seen_is_seen(runc, probe):
    outcome = check(runc, probe)
    if outcome.status is Status.FAIL:
        runc.renew()
    assert (outcome.status, outcome.reason) == (Status.PASS, probe.statement)


def test_there_are_as_many_probes_as_are_promised():
    names = [probe.name for probe in PROBES]
    assert len(set(names)) == len(names)
    assert {
        group: len(probes) >= least for (group, probes), least in zip(GROUPS.items(), (40, 35, 20), strict=True)
    } == dict.fromkeys(GROUPS, True)
