"""Each probe fails in a sandbox in which it must."""

from __future__ import annotations

import pytest

from codesdk.sandbox.fake.sandboxes import FakeSandboxes, Script
from codesdk.sandbox.selfcheck import PROBES, Status, check
from selfcheck_bench import bench_on


@pytest.fixture
def mute():
    """A sandbox that runs nothing: every program exits with 0 at once and says nothing."""
    return bench_on(FakeSandboxes(lambda _: Script(), images=["sha256:fake"]), "test-mute", "sha256:fake")


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.name)
def test_a_probe_fails_where_nothing_runs(mute, probe):
    assert check(mute, probe).status is Status.FAIL
