from __future__ import annotations

import pytest

from codesdk.sandbox.isolation.disk_quota import (
    QuotaBackend,
    QuotaSupport,
    choose_backend,
    detect_support,
    volume_options,
)
from codesdk.sandbox.port import SandboxSpec
from codesdk.sandbox.profiles.profile import Profile

MIB = 1 << 20
LOOPS = QuotaSupport(loop_missing=())
NO_LOOPS = QuotaSupport(loop_missing=("the worker is not root",))
SPEC = SandboxSpec(owner="sbx_1", instance="ins", profile=Profile(), image="sha256:0", tool_uid=200_001, generation=1)


@pytest.mark.parametrize(
    ("size", "memory", "facts", "cap"),
    [
        (0, 512 * MIB, LOOPS, QuotaBackend.NONE),
        (256 * MIB, 512 * MIB, LOOPS, QuotaBackend.TMPFS),
        (256 * MIB, 512 * MIB, NO_LOOPS, QuotaBackend.TMPFS),
        (257 * MIB, 512 * MIB, LOOPS, QuotaBackend.LOOP),
        (257 * MIB, 512 * MIB, NO_LOOPS, QuotaBackend.COUNTED),
        (0, 512 * MIB, NO_LOOPS, QuotaBackend.NONE),
    ],
)
def test_what_caps_a_workspace(size, memory, facts, cap):
    assert choose_backend(Profile(workspace_bytes=size, memory_bytes=memory), facts) is cap


def test_the_default_profile_is_capped_on_disk_where_that_works():
    assert choose_backend(Profile(), LOOPS) is QuotaBackend.LOOP


def test_a_capped_workspace_has_neither_setuid_nor_devices():
    for cap in (QuotaBackend.TMPFS, QuotaBackend.LOOP):
        assert {"nosuid", "nodev"} <= set(volume_options(SPEC, cap, "/dev/loop7")["o"].split(","))
    assert volume_options(SPEC, QuotaBackend.LOOP, "/dev/loop7")["device"] == "/dev/loop7"
    assert volume_options(SPEC, QuotaBackend.NONE) == volume_options(SPEC, QuotaBackend.COUNTED) == {}


def test_a_tmpfs_caps_bytes_and_inodes_and_is_the_tools_own():
    small = SPEC.model_copy(update={"profile": Profile(workspace_bytes=MIB, workspace_inodes=2048)})
    options = set(volume_options(small, QuotaBackend.TMPFS)["o"].split(","))
    assert {"size=1048576", "nr_inodes=2048", "uid=200001", "gid=200001"} <= options


@pytest.mark.parametrize(
    ("endpoint", "info", "reason"),
    [
        ("tcp://10.0.0.1:2375", {}, "the engine is not on this machine"),
        ("unix:///var/run/docker.sock", {"Name": "another", "DockerRootDir": "/"}, "the engine is not on this machine"),
        ("unix:///s", {"SecurityOptions": ["name=seccomp,profile=default", "name=rootless"]}, "the engine is rootless"),
    ],
)
def test_an_engine_elsewhere_or_without_rights_gets_no_loop_devices(endpoint, info, reason):
    assert reason in detect_support(endpoint, info).loop_missing


def test_an_engine_that_runs_this_process_in_a_container_shares_its_devices():
    elsewhere = "the engine is not on this machine"
    info = {"Name": "the-host", "DockerRootDir": "/nowhere-in-the-container"}
    assert elsewhere in detect_support("unix:///s", info).loop_missing
    assert elsewhere not in detect_support("unix:///s", info, is_engine_container=True).loop_missing
