"""Sandboxes that were weakened on purpose: the probes of the removed protection fail, with that reason."""

from __future__ import annotations

import uuid

import pytest

from codesdk.domain.attestation import ExecSeparation
from codesdk.sandbox.docker import attestation
from codesdk.sandbox.docker.driver import DockerSandboxes
from codesdk.sandbox.docker.engine import Engine
from codesdk.sandbox.isolation import spec as specs
from codesdk.sandbox.packaging import bundle
from codesdk.sandbox.port.faults import IsolationDrift
from codesdk.sandbox.selfcheck import PROBES, Status, check
from selfcheck_bench import bench_on

pytestmark = pytest.mark.engine

CONTAINERS = {
    "no filter of system calls": (
        {"security_opt": ["no-new-privileges", "seccomp=unconfined"]},
        {
            "escape-filter", "escape-denied-keys", "escape-denied-namespaces", "escape-denied-io-uring",
            "escape-denied-other-processes", "escape-denied-vmsplice", "escape-denied-memory-placement",
            "escape-denied-aio", "escape-denied-segments", "escape-denied-programs-in-kernel", "escape-denied-mounts",
            "escape-denied-file-handles", "escape-denied-userfaultfd", "escape-denied-clock-and-names",
            "escape-namespaces", "escape-clone3", "escape-socket-families", "escape-personality", "escape-32-bit-entry",
        },
    ),
    "the engine's own filter": (
        {"security_opt": ["no-new-privileges"]},
        {"escape-denied-vmsplice", "escape-denied-aio", "escape-denied-other-processes", "escape-socket-families", "escape-32-bit-entry"},
    ),
    "a writable root": ({"read_only": False}, {"escape-read-only"}),
    "the host's network": ({"network_mode": "host"}, {"escape-interfaces"}),
    "a capability more": ({"cap_add": [*specs.CAPABILITIES, "NET_RAW"]}, {"escape-capabilities"}),
    "the kernel's settings unmasked": ({"HostConfig": {"MaskedPaths": [], "ReadonlyPaths": []}}, {"escape-read-only", "escape-mounted"}),
    "programs that gain rights": ({"security_opt": [specs.seccomp.option()]}, {"escape-no-new-privileges"}),
    "the host's processes": ({"pid_mode": "host", "init": False}, {"escape-processes"}),
    "the engine's socket": ({"volumes": {"/var/run/docker.sock": {"bind": "/var/run/docker.sock", "mode": "ro"}}}, {"escape-engine-socket"}),
    "a folder of the host's": ({"volumes": {"/usr/share": {"bind": "/mnt", "mode": "ro"}}}, {"escape-mounted"}),
    "a device": ({"devices": ["/dev/kmsg:/dev/kmsg:r"]}, {"escape-dev"}),
    "no limits": ({"mem_limit": 0, "memswap_limit": 0, "pids_limit": -1}, {"escape-limits"}),
    "a /tmp that executes nothing": ({"tmpfs": {**dict.fromkeys(specs.TMPFS, "rw"), "/tmp": "rw,noexec,mode=1777"}}, {"exec-places-to-write"}),
}  # fmt: skip


@pytest.fixture
def weaken(engine, sandbox_image, monkeypatch):
    """Opens sandboxes that differ from the spec; what would refuse them looks away."""
    engine_client = Engine(engine.host)
    made = DockerSandboxes(f"test-{uuid.uuid4().hex}", engine_client)
    container, create_container = specs.container_options, engine_client.api.create_container_from_config

    def changed(changes, *, attested=False):
        words = {name: value for name, value in changes.items() if name != "HostConfig"}
        monkeypatch.setattr(specs, "container_options", lambda *some, **more: {**container(*some, **more), **words})
        host_config = changes.get("HostConfig", {})  # what the SDK has no words for

        def create(config, *some, **more):
            return create_container({**config, "HostConfig": {**config["HostConfig"], **host_config}}, *some, **more)

        monkeypatch.setattr(engine_client.api, "create_container_from_config", create)
        if not attested:
            monkeypatch.setattr(attestation, "differences", lambda *_, **__: ())
        return bench_on(made, made._instance, sandbox_image)

    yield changed
    made.sweep(())
    made.close()


def failures(bench, names):
    _ = bench.sandbox  # it opens: what fails below is the probe
    found = {probe.name: check(bench, probe) for probe in PROBES if probe.name in names}
    bench.close()
    return {name for name, outcome in found.items() if outcome.status is Status.FAIL}


@pytest.mark.parametrize("weakness", CONTAINERS)
def test_probes_see_the_weakness(weaken, weakness):
    changes, seen_by = CONTAINERS[weakness]
    assert failures(weaken(changes), seen_by) == seen_by


SEEN_BY_PROBES_ONLY = {"a /tmp that executes nothing"}
"""Of all others the attestation tells at the start."""


@pytest.mark.parametrize("weakness", sorted(set(CONTAINERS) - SEEN_BY_PROBES_ONLY))
def test_the_attestation_refuses_the_weakness(weaken, weakness):
    bench = weaken(CONTAINERS[weakness][0], attested=True)
    with pytest.raises(IsolationDrift):
        _ = bench.sandbox


def test_probes_see_that_limits_are_missing(weaken, monkeypatch):
    limits = specs.rlimits
    monkeypatch.setattr(
        specs, "rlimits", lambda spec: {n: v for n, v in limits(spec).items() if n not in ("fsize", "nofile")}
    )
    expected = {"hostile-file-size", "hostile-raise-limits", "hostile-descriptors"}
    assert failures(weaken({}), expected) == expected


def test_the_probe_sees_that_execs_reach_each_other_and_the_attestation_says_so(weaken, monkeypatch):
    original, entering = bundle.source, "or kernel.enter_domain()"
    assert entering in original("execution.subreaper")
    monkeypatch.setattr(bundle, "source", lambda name: original(name).replace(entering, "or False"))
    changed = bundle.program.__wrapped__()
    monkeypatch.setattr(bundle, "program", lambda: changed)
    bench = weaken({}, attested=True)
    assert bench.sandbox.attestation.exec_separation is ExecSeparation.NONE
    assert failures(bench, {"escape-other-exec"}) == {"escape-other-exec"}
