from __future__ import annotations

import pytest

from codesdk.provision.checks.check import Status
from codesdk.provision.checks.engine_checks import check_engine

WHOLE = {
    "RuncCommit": {"ID": "v1.3.3-0-gabcdef0"},
    "CgroupVersion": "2",
    "CgroupDriver": "systemd",
    "MemoryLimit": True,
    "SwapLimit": True,
    "PidsLimit": True,
    "CpuCfsQuota": True,
    "SecurityOptions": ["name=apparmor", "name=seccomp,profile=builtin", "name=cgroupns"],
    "Runtimes": {"runc": {}, "runsc": {}},
}


def statuses(**changes):
    return {check.name: check.status for check in check_engine({**WHOLE, **changes})}


def test_a_current_engine_with_gvisor_has_nothing_to_mend():
    assert set(statuses().values()) == {Status.OK}


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ("1.1.5+ds1-1+deb12u1", Status.WARN),
        ("v1.2.7-0-g0", Status.WARN),
        ("v1.2.8-0-g0", Status.OK),
        ("v1.3.2", Status.WARN),
        ("v1.4.0", Status.OK),
        ("2.0.0", Status.OK),
        ("", Status.WARN),
    ],
)
def test_runc_is_judged_by_its_branch(said, status):
    assert statuses(RuncCommit={"ID": said})["runc"] is status


def test_a_missing_memory_limit_fails_and_a_missing_swap_limit_warns():
    assert statuses(MemoryLimit=False)["cgroups"] is Status.FAIL
    assert statuses(SwapLimit=False)["cgroups"] is Status.WARN


def test_an_engine_without_seccomp_fails():
    assert statuses(SecurityOptions=["name=apparmor"])["seccomp"] is Status.FAIL
    assert statuses(SecurityOptions=["name=seccomp,profile=unconfined"])["seccomp"] is Status.FAIL


def test_an_empty_document_is_judged_and_not_tripped_over():
    assert {check.name for check in check_engine({})} == {"runc", "cgroups", "seccomp", "gvisor"}


def test_all_that_is_not_ok_says_how_to_mend_it():
    assert all(check.fix for check in check_engine({}) if check.status is not Status.OK)
