"""The request to the engine, and the refusal of a different result."""

from __future__ import annotations

import copy

import pytest

from codesdk.sandbox import seccomp
from codesdk.sandbox.docker import attestation
from codesdk.sandbox.images.builder import content_hash, refusals
from codesdk.sandbox.isolation import spec as specs
from codesdk.sandbox.packaging import bundle
from codesdk.sandbox.port import SandboxSpec, SharedWorkspace
from codesdk.sandbox.profiles.profile import Profile

SPEC = SandboxSpec(
    owner="sbx_1", instance="here", profile=Profile(), image="sha256:abc", tool_uid=200_001, generation=1
)


def test_every_capability_states_its_reason_and_no_other_is_asked_for():
    assert set(specs.CAPABILITIES) == {"SETUID", "SETGID", "KILL", "CHOWN"}
    assert all(len(reason) > 20 for reason in specs.CAPABILITIES.values())
    assert specs.container_options(SPEC)["cap_drop"] == ["ALL"]


def test_the_container_has_no_network_no_privileges_and_a_read_only_root():
    asked = specs.container_options(SPEC)
    assert asked["network_mode"] == "none"
    assert asked["privileged"] is False
    assert asked["read_only"] is True
    assert asked["security_opt"] == ["no-new-privileges", seccomp.option()]
    assert asked["mem_limit"] == asked["memswap_limit"] == SPEC.profile.memory_bytes


def test_entrypoint_user_health_check_and_stop_signal_are_ours():
    asked = specs.container_options(SPEC)
    assert asked["entrypoint"][:6] == ["python3", "-I", "-S", "-X", "no_debug_ranges", "-c"]
    assert asked["user"] == "0:0"
    assert asked["healthcheck"] == {"test": ["NONE"]}
    assert asked["stop_signal"] == "SIGKILL"


def test_names_differ_by_owner_and_by_instance_and_not_by_generation():
    names = {specs.container_name(instance, owner) for instance in ("a", "b") for owner in ("sbx_1", "sbx_2")}
    assert len(names) == 4


def test_the_label_holds_the_whole_spec():
    label = specs.container_labels(SPEC)[specs.LABEL_SPEC]
    assert specs.spec_from_label(label, 7) == SPEC.model_copy(update={"generation": 7})
    assert specs.same_sandbox(SPEC, label)
    assert not specs.same_sandbox(SPEC.model_copy(update={"tool_uid": 200_002}), label)
    assert not specs.same_sandbox(SPEC, "forged")


def test_the_runner_fits_in_one_argument_and_carries_no_secret():
    line = bundle.command(specs.runner_settings(SPEC))
    assert max(map(len, line)) < 128 * 1024
    assert "here" not in line[-1]


def test_tools_cannot_take_all_processes():
    assert specs.rlimits(SPEC)["nproc"] + specs.RESERVED_PIDS == SPEC.profile.pids


GOOD_HOST = {
    "Runtime": "runc", "NetworkMode": "none", "Privileged": False, "ReadonlyRootfs": True,
    "CapAdd": ["CAP_SETUID", "CAP_SETGID", "CAP_KILL", "CAP_CHOWN"], "CapDrop": ["ALL"],
    "SecurityOpt": ["no-new-privileges", seccomp.option()], "Memory": 536870912, "MemorySwap": 536870912, "NanoCpus": 10**9,
    "PidsLimit": 256, "PidMode": "", "IpcMode": "private", "UTSMode": "", "UsernsMode": "", "ExtraHosts": ["sandbox:127.0.0.1"], "Binds": None, "Devices": [], "Init": True,
    "LogConfig": {"Type": "none"}, "Tmpfs": {"/tmp": "", "/run": ""},
}  # fmt: skip
GOOD = {
    "Image": "sha256:abc",
    "HostConfig": GOOD_HOST,
    "Config": {
        "User": "0:0", "Entrypoint": bundle.command(specs.runner_settings(SPEC)), "Cmd": None,
        "Healthcheck": {"Test": ["NONE"]}, "StdinOnce": False,
    },
    "Mounts": [{"Type": "volume", "Name": specs.container_name("here", "sbx_1"), "Destination": "/workspace", "RW": True}],
}  # fmt: skip
SEEN = {
    "status": {
        "Uid": "200001\t200001\t200001\t200001", "Gid": "200001\t200001\t200001\t200001", "Groups": "",
        "CapInh": "0", "CapPrm": "0", "CapEff": "0", "CapBnd": "00000000000000e1", "CapAmb": "0",
        "NoNewPrivs": "1", "Seccomp": "2",
    },
    "mounts": [
        ["/", "ro,relatime", "overlay"], ["/workspace", "rw", "ext4"], ["/tmp", "rw", "tmpfs"], ["/run", "rw", "tmpfs"],
        ["/proc/sys", "ro,relatime", "proc"],
    ],
    "interfaces": ["lo"],
    "uid_map": "0 0 4294967295\n", "gid_map": "0 0 4294967295\n",
    "limits": {"memory_bytes": "536870912", "pids": "256", "cpu": "100000"},
    "attempts": {"become_root": "EPERM", "write_root": "EROFS"},
}  # fmt: skip


def test_a_sandbox_that_is_as_asked_has_no_differences():
    assert attestation.differences(SPEC, GOOD, SEEN) == ()
    stated = attestation.attestation(GOOD, SEEN)
    assert (stated.tool_uid, stated.capabilities, stated.seccomp) == (200_001, (), "filter")


DRIFTS = {
    "privileged": ("HostConfig", "Privileged", True),
    "network": ("HostConfig", "NetworkMode", "bridge"),
    "capability": ("HostConfig", "CapAdd", ["SYS_ADMIN"]),
    "seccomp": ("HostConfig", "SecurityOpt", ["no-new-privileges", "seccomp=unconfined"]),
    "bind": ("HostConfig", "Binds", ["/:/host"]),
    "hosts": ("HostConfig", "ExtraHosts", ["localhost:192.0.2.1"]),
    "device": ("HostConfig", "Devices", [{"PathOnHost": "/dev/sda"}]),
    "pid namespace": ("HostConfig", "PidMode", "host"),
    "user namespace": ("HostConfig", "UsernsMode", "host"),
    "memory": ("HostConfig", "Memory", 0),
    "runtime": ("HostConfig", "Runtime", "other"),
    "entrypoint": ("Config", "Entrypoint", ["/bin/sh"]),
    "health check": ("Config", "Healthcheck", {"Test": ["CMD", "x"]}),
}


@pytest.mark.parametrize("drift", DRIFTS)
def test_a_difference_at_the_engine_is_named(drift):
    part, key, value = DRIFTS[drift]
    changed = copy.deepcopy(GOOD)
    changed[part][key] = value
    (difference,) = attestation.differences(SPEC, changed, SEEN)
    assert key in difference


SIGHTS = {
    "root": ("status", "Uid", "0\t0\t0\t0"),
    "capability": ("status", "CapEff", "1"),
    "bounding set": ("status", "CapBnd", "00000000a80425fb"),
    "new privileges": ("status", "NoNewPrivs", "0"),
    "no seccomp": ("status", "Seccomp", "0"),
    "memory": ("limits", "memory_bytes", "9223372036854771712"),
    "no limit": ("limits", "pids", "max"),
    "CPU": ("limits", "cpu", "200000"),
    "no limit of CPU": ("limits", "cpu", "max 100000"),
    "allowed": ("attempts", "become_root", "ALLOWED"),
}


@pytest.mark.parametrize("sight", SIGHTS)
def test_a_difference_in_the_kernel_is_named(sight):
    part, key, value = SIGHTS[sight]
    changed = copy.deepcopy(SEEN)
    changed[part][key] = value
    assert len(attestation.differences(SPEC, GOOD, changed)) == 1


@pytest.mark.parametrize("word", sorted(SEEN["status"].keys() - {"Groups"}))
def test_a_kernel_that_leaves_a_word_of_rights_out_refuses_the_sandbox(word):
    silent = {name: said for name, said in SEEN["status"].items() if name != word}
    assert len(attestation.differences(SPEC, GOOD, {**SEEN, "status": silent})) == 1


def test_another_interface_and_a_writable_root_are_differences():
    changed = copy.deepcopy(SEEN)
    changed["interfaces"] = ["lo", "eth0"]
    changed["mounts"][0][1] = "rw,relatime"
    assert len(attestation.differences(SPEC, GOOD, changed)) == 2


def test_images_are_refused_for_volumes_loader_variables_and_our_labels():
    config = {
        "Volumes": {"/data": {}},
        "Env": ["PATH=/bin", "LD_PRELOAD=/x.so", "PYTHONPATH=/x", "PYTHON_VERSION=3.12"],
        "Labels": {"codesdk.owner": "sbx_of_somebody"},
    }
    reasons = refusals({"Config": config})
    assert len(reasons) == 3
    assert "LD_PRELOAD, PYTHONPATH" in reasons[1]
    assert "PYTHON_VERSION" not in reasons[1]
    assert (
        refusals({"Config": {"Env": ["PATH=/bin", "PYTHON_VERSION=3"], "Labels": {"codesdk.image.name": "base"}}}) == ()
    )


def test_the_content_hash_changes_with_content_name_mode_and_base(tmp_path):
    (tmp_path / "Dockerfile").write_text("FROM x")
    hashes = {content_hash(tmp_path, "base")}
    hashes.add(content_hash(tmp_path, "other"))
    (tmp_path / "Dockerfile").chmod(0o755)
    hashes.add(content_hash(tmp_path, "base"))
    (tmp_path / "more").write_text("")
    hashes.add(content_hash(tmp_path, "base"))
    assert len(hashes) == 4


@pytest.mark.parametrize(
    ("shown", "mapped"),
    [
        ("0 0 4294967295\n", True),
        ("         0     100000     250000\n", True),
        ("0 1000 1\n1 100000 65536\n", False),
        ("0 1000 1\n200001 100000 1\n", True),
        ("200002 0 10\n", False),
        ("", False),
    ],
)
def test_a_tool_uid_that_the_user_namespace_maps_to_none_refuses_the_sandbox(shown, mapped):
    found = attestation.differences(SPEC, GOOD, {**SEEN, "uid_map": shown})
    assert (found == ()) == mapped
    if not mapped:
        assert "uid_map" in found[0]


def test_the_map_of_user_ids_is_stated():
    assert attestation.attestation(GOOD, {**SEEN, "uid_map": "  0 1000 1\n 1 100000 65536\n"}).uid_map == (
        "0 1000 1, 1 100000 65536"
    )


def lent(seen="ro", writable=False, apart=True):
    """What a sandbox that reads another's workspace is asked for, and what engine and kernel say of it."""
    asked = SPEC.model_copy(
        update={
            "profile": SPEC.profile.model_copy(update={"workspace": "/srv"}),
            "borrows": SharedWorkspace(owner="sbx_2", place="/workspace"),
        }
    )
    good, sight = copy.deepcopy(GOOD), copy.deepcopy(SEEN)
    good["Config"]["Entrypoint"] = specs.container_options(asked)["entrypoint"]
    good["HostConfig"]["SecurityOpt"] = ["no-new-privileges", seccomp.option(apart=apart)]
    good["Mounts"] = [
        {"Type": "volume", "Name": specs.container_name("here", owner), "Destination": place, "RW": written}
        for owner, place, written in (("sbx_2", "/workspace", writable), ("sbx_1", "/srv", True))
    ]
    sight["mounts"] = [mount for mount in sight["mounts"] if mount[0] != "/workspace"]
    sight["mounts"] += [["/workspace", f"{seen},relatime", "ext4"], ["/srv", "rw", "ext4"]]
    return attestation.differences(asked, good, sight)


def test_a_workspace_that_is_lent_can_be_read_alone():
    assert lent() == ()


@pytest.mark.parametrize(
    ("how", "said"), [({"seen": "rw"}, "only read"), ({"writable": True}, "Mounts"), ({"apart": False}, "SecurityOpt")]
)
def test_a_workspace_that_could_be_written_or_met_in_is_a_difference(how, said):
    (difference,) = lent(**how)
    assert said in difference
