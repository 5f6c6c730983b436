"""The escape probes on gVisor; the whole suite there takes three minutes and is `codesdk sandbox selfcheck --runtime runsc`."""

from __future__ import annotations

import pytest

from codesdk.sandbox.port.faults import RuntimeMissing
from codesdk.sandbox.selfcheck import PROBES, Group, Status, check
from codesdk.sandbox.selfcheck.suite import EXEMPT, GROUPS
from sandboxes import docker_sandboxes
from selfcheck_bench import bench_on

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def runsc(gvisor_engine, sandbox_image):
    with docker_sandboxes(gvisor_engine.host) as made:
        bench = bench_on(made, made._instance, sandbox_image, runtime="runsc")
        yield bench
        bench.close()


@pytest.mark.parametrize("probe", GROUPS[Group.ESCAPE], ids=lambda probe: probe.name)
def test_what_must_be_seen_is_seen_or_exempt(runsc, probe):
    outcome = check(runsc, probe)
    if outcome.status is Status.FAIL:
        runsc.renew()
    exempt = EXEMPT["runsc"].get(probe.name)
    assert (outcome.status, outcome.reason) == ((Status.EXEMPT, exempt) if exempt else (Status.PASS, probe.statement))


@pytest.mark.parametrize(
    "name", ["end-timeout-double-fork", "end-background", "hostile-daemons", "exec-directory-refused"]
)
def test_trees_end_and_links_are_refused_without_subreapers_and_openat2(runsc, name):
    (probe,) = (probe for probe in PROBES if probe.name == name)
    outcome = check(runsc, probe)
    assert (outcome.status, outcome.reason) == (Status.PASS, probe.statement)


def test_exemptions_name_probes_that_exist_and_give_reasons():
    names = {probe.name for probe in PROBES}
    assert {name for exempt in EXEMPT.values() for name in exempt} <= names
    assert all(reason for exempt in EXEMPT.values() for reason in exempt.values())


def test_an_engine_without_the_runtime_refuses_and_says_how_to_register_it(engine, sandbox_image):
    with docker_sandboxes(engine.host) as made:
        bench = bench_on(made, made._instance, sandbox_image, runtime="no-such-runtime")
        with pytest.raises(RuntimeMissing, match=r"no runtime `no-such-runtime`; it has .*runc") as caught:
            _ = bench.sandbox
        assert "daemon.json" in caught.value.advice()
        assert not made._engine.api.containers(all=True, filters={"label": f"codesdk.instance={made._instance}"})
