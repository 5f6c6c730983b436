"""Cgroups of local sandboxes: where the kernel allows them, and the report where it doesn't."""

from __future__ import annotations

from pathlib import Path

import pytest

from codesdk.sandbox.local import attestation, cgroups
from codesdk.sandbox.local.cgroups import Cgroup, CgroupSupport, Controller, Hierarchy
from codesdk.sandbox.port import SandboxSpec
from codesdk.sandbox.profiles.profile import Profile

V1 = (
    "9:name=systemd:/\n8:pids:/\n4:memory:/service/one\n2:cpu,cpuacct:/\n0::/\n",
    """31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
38 31 0:35 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
39 31 0:36 / /sys/fs/cgroup/blkio rw,relatime - cgroup cgroup rw,blkio
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
""",
)
V2 = (
    "0::/user.slice/user-1000.slice/user@1000.service/app.slice/run.scope\n",
    "41 31 0:38 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n",
)
V2_IN_A_CONTAINER = ("0::/docker/ab/one\n", "41 31 0:38 /docker/ab /sys/fs/cgroup rw - cgroup2 cgroup rw\n")


@pytest.fixture
def shown(tmp_path, monkeypatch):
    def show(texts: tuple[str, str]) -> list[Hierarchy]:
        for name, text in zip(("cgroup", "mountinfo"), texts, strict=True):
            (tmp_path / name).write_text(text)
        monkeypatch.setattr(cgroups, "SELF", tmp_path)
        return list(cgroups._hierarchies())

    return show


def test_separate_hierarchies_are_found_with_our_own_place_in_each(shown):
    found = {mount.controllers: str(mount.own) for mount in shown(V1)}
    assert found == {
        ("cpu", "cpuacct"): "/sys/fs/cgroup/cpu,cpuacct",
        ("memory",): "/sys/fs/cgroup/memory/service/one",
        ("pids",): "/sys/fs/cgroup/pids",
        ("name=systemd",): "/sys/fs/cgroup/systemd",
        (): "/sys/fs/cgroup/unified",
    }


def test_the_one_hierarchy_is_found_with_our_own_place_in_it(shown):
    (found,) = shown(V2)
    assert (found.controllers, str(found.root)) == ((), "/sys/fs/cgroup")
    assert str(found.own).endswith("/app.slice/run.scope")
    (found,) = shown(V2_IN_A_CONTAINER)
    assert str(found.own) == "/sys/fs/cgroup/one"


def test_where_nothing_is_mounted_nothing_can_be_made():
    found = cgroups.detect([])
    assert (found.parents, found.whole) == ({}, False)
    assert "none mounted" in found.why_not


@pytest.mark.parametrize("controllers", [("memory",), ()])
def test_a_place_that_does_not_cap_is_not_taken_and_nothing_stays_there(tmp_path, controllers):
    own = tmp_path / "one" / "two"
    own.mkdir(parents=True)
    found = cgroups.detect([Hierarchy(controllers, tmp_path, own)])
    assert found.parents == {}
    assert found.why_not
    assert [path for path in tmp_path.rglob("*") if path.is_dir() and path.name.startswith("codesdk-try")] == []


def test_the_profiles_caps_are_what_the_kernel_is_asked_for():
    profile = Profile(memory_bytes=64 << 20, swap_bytes=1 << 20, cpus=0.5, pids=90)
    asked = {
        unified: dict(pair for control in Controller for pair in cgroups._cap_files(control, profile, unified=unified))
        for unified in (True, False)
    }
    assert asked[True] == {
        "memory.max": "67108864",
        "memory.swap.max": "1048576",
        "cpu.max": "50000 100000",
        "pids.max": "90",
    }
    assert asked[False] == {
        "memory.limit_in_bytes": "67108864",
        "memory.memsw.limit_in_bytes": "68157440",
        "cpu.cfs_period_us": "100000",
        "cpu.cfs_quota_us": "50000",
        "pids.max": "90",
    }


def spec(**profile: object) -> SandboxSpec:
    return SandboxSpec(
        owner="sbx_1", instance="i", profile=Profile(**profile), image="sha256:0", tool_uid=200_000, generation=1
    )


def test_a_cap_that_is_missing_or_another_is_told_where_it_was_asked_for():
    asked = spec(memory_bytes=64 << 20, cpus=0.5, pids=90)
    right = {Controller.MEMORY: 64 << 20, Controller.CPU: 0.5, Controller.PIDS: 90}
    assert attestation.cap_differences(asked, right, set(right)) == ()
    assert attestation.cap_differences(asked, {}, set()) == ()
    (said,) = attestation.cap_differences(asked, {**right, Controller.MEMORY: 65 << 20}, set(right))
    assert "cap of memory is 68157440, expected 67108864" in said
    assert len(attestation.cap_differences(asked, {}, set(right))) == 3


def test_what_lies_in_one_place_is_shown_as_one_and_what_lies_apart_by_its_controllers():
    one = Cgroup(dict.fromkeys(Controller, Path("/x")))
    assert one.views == {"": "/x"}
    assert one.procs_files == ["/x/cgroup.procs"]
    apart = CgroupSupport(parents={Controller.MEMORY: "/m", Controller.PIDS: "/p"}).of("name")
    assert apart.views == {"memory": "/m/name", "pids": "/p/name"}


class Stuck(Cgroup):
    """Processes that another PID namespace holds: the kernel shows each as 0, and nothing here ends them."""

    def freeze(self, *, frozen: bool) -> None:
        if not frozen:
            raise OSError("the freezer does not answer")


def test_what_cannot_be_thawed_or_reached_is_said_after_the_deadline_and_nobody_else_is_killed(tmp_path):
    (tmp_path / "cgroup.procs").write_text("0\n")  # to kill(2), 0 is this test's own process group
    assert Stuck({Controller.PIDS: tmp_path}).end(0.1) is False


def test_what_has_ended_meanwhile_needs_no_end(tmp_path):
    (tmp_path / "cgroup.procs").write_text("")
    assert Stuck({Controller.PIDS: tmp_path}).end(0.1) is True
