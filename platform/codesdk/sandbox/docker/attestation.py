"""Compares the spec with what engine and kernel report. No I/O; any difference rejects the sandbox."""

from __future__ import annotations

from typing import Any

from codesdk.sandbox.isolation import disk_quota, kernel_facts
from codesdk.sandbox.isolation.spec import (
    CAPABILITIES,
    HOSTNAME,
    TMPFS,
    find_runtime,
    runner_settings,
    security_options,
    volumes,
)
from codesdk.sandbox.packaging.bundle import command
from codesdk.sandbox.port import Attestation, SandboxSpec

_UNLIMITED = {None, "max"}
PERIOD_US = 100_000
"""CFS period that the engine uses for NanoCpus, in microseconds."""


def differences(spec: SandboxSpec, inspected: dict[str, Any], observed: dict[str, Any]) -> tuple[str, ...]:
    """Return one sentence per difference; empty if the sandbox matches its spec."""
    return (
        *_engine_differences(spec, inspected),
        *_kernel_differences(spec, observed),
        *_disk_differences(spec, inspected, observed),
        *_shared_workspace_differences(spec, observed),
    )


def attestation(inspected: dict[str, Any], observed: dict[str, Any]) -> Attestation:
    """Build the attestation to record."""
    host = inspected["HostConfig"]
    return Attestation(
        **kernel_facts.kernel_facts(observed),
        read_only_root=bool(host["ReadonlyRootfs"]),
        memory_bytes=int(host["Memory"]),
        pids_limit=int(host["PidsLimit"] or 0),
        runtime=str(host["Runtime"]),
        image=str(inspected["Image"]),
        disk_cap=disk_cap(inspected).value,
    )


def disk_cap(inspected: dict[str, Any]) -> disk_quota.QuotaBackend:
    """Return the quota backend, from the driver's label."""
    return disk_quota.QuotaBackend(
        (inspected["Config"].get("Labels") or {}).get(disk_quota.LABEL, disk_quota.QuotaBackend.NONE.value)
    )


def _engine_differences(spec: SandboxSpec, inspected: dict[str, Any]) -> list[str]:
    profile, host, config = spec.profile, inspected["HostConfig"], inspected["Config"]
    runtime = find_runtime(profile.runtime)
    expected = {
        "Image": (spec.image, inspected["Image"]),
        "Runtime": (profile.runtime, host["Runtime"]),
        "NetworkMode": ("none", host["NetworkMode"]),
        "Privileged": (False, host["Privileged"]),
        "ReadonlyRootfs": (True, host["ReadonlyRootfs"]),
        "CapAdd": (sorted(CAPABILITIES), sorted(name.removeprefix("CAP_") for name in host["CapAdd"] or ())),
        "CapDrop": (["ALL"], host["CapDrop"]),
        "SecurityOpt": (security_options(profile, apart=spec.borrows is not None), host["SecurityOpt"]),
        "Memory": (profile.memory_bytes, host["Memory"]),
        "MemorySwap": (profile.memory_bytes + profile.swap_bytes, host["MemorySwap"]),
        "NanoCpus": (int(profile.cpus * 1e9), host["NanoCpus"]),
        "PidsLimit": (runtime.pids_limit(profile.pids), host["PidsLimit"]),
        "PidMode": ("", host["PidMode"]),
        "IpcMode": ("private", host["IpcMode"]),
        "UTSMode": ("", host["UTSMode"]),
        "UsernsMode": ("", host.get("UsernsMode", "")),
        "Binds": ([], host["Binds"] or []),
        "Devices": ([], host["Devices"] or []),
        "DeviceRequests": ([], host.get("DeviceRequests") or []),
        "VolumesFrom": ([], host.get("VolumesFrom") or []),
        "ExtraHosts": ([f"{HOSTNAME}:127.0.0.1"], host.get("ExtraHosts") or []),
        "GroupAdd": ([], host.get("GroupAdd") or []),
        "Init": (runtime.has_subreapers, bool(host["Init"])),
        "LogConfig": ("none", host["LogConfig"]["Type"]),
        "Tmpfs": (sorted(TMPFS), sorted(host["Tmpfs"] or {})),
        "User": ("0:0", config["User"]),
        "Entrypoint": (
            command(runner_settings(spec, counted=disk_cap(inspected) is disk_quota.QuotaBackend.COUNTED)),
            config["Entrypoint"],
        ),
        "Cmd": ([], config["Cmd"] or []),
        "Healthcheck": (["NONE"], (config.get("Healthcheck") or {}).get("Test")),
        "StdinOnce": (False, config["StdinOnce"]),
        "Mounts": (
            sorted(("volume", *volume) for volume in volumes(spec)),
            sorted(
                (each["Type"], each.get("Name", ""), each["Destination"], each["RW"]) for each in inspected["Mounts"]
            ),
        ),
    }
    return [
        f"engine: {word} is {found!r}, asked {asked!r}" for word, (asked, found) in expected.items() if asked != found
    ]


def _kernel_differences(spec: SandboxSpec, observed: dict[str, Any]) -> list[str]:
    status, uid = observed["status"], str(spec.tool_uid)
    found: list[str] = []

    def expect(word: str, asked: object, seen: object) -> None:
        if asked != seen:
            found.append(f"kernel: {word} is {seen!r}, expected {asked!r}")

    expect("uids of a tool", [uid] * 4, status.get("Uid", "").split()[:4])
    expect("gids of a tool", [uid] * 4, status.get("Gid", "").split()[:4])
    expect("groups of a tool", "", status.get("Groups", "").replace(uid, "").strip())
    # With a user namespace, an unmapped tool uid would be the overflow uid that all unmapped uids share.
    for word in ("uid_map", "gid_map"):
        expect(f"the tool in the {word}", True, kernel_facts.is_mapped(spec.tool_uid, observed[word]))
    is_linux = find_runtime(spec.profile.runtime).is_linux
    for word in ("CapInh", "CapPrm", "CapEff", *(("CapAmb",) if is_linux else ())):
        expect(f"{word} of a tool", 0, int(status.get(word, "1"), 16))
    expect("capabilities in the bounding set beyond those granted", 0, kernel_facts.ungranted_capabilities(status))
    if is_linux:  # gVisor's /proc has none of these
        expect("NoNewPrivs of a tool", "1", status.get("NoNewPrivs"))
        expect("Seccomp of a tool", "2", status.get("Seccomp"))
    expect("network interfaces", ["lo"], observed["interfaces"])
    for attempt, outcome in observed["attempts"].items():
        if outcome == "ALLOWED":
            found.append(f"kernel: a tool was allowed to {attempt.replace('_', ' ')}")
    mounts = {mount[0]: mount for mount in observed["mounts"]}
    expect("the root's mount", "ro", mounts.get("/", ["", "?"])[1].split(",")[0])
    if is_linux:  # defence in depth: kernel settings must not depend on file permissions alone
        expect("the mount of /proc/sys", "ro", mounts.get("/proc/sys", ["", "none"])[1].split(",")[0])
    expect("a mount at the workspace", True, spec.profile.workspace in mounts)
    for place in TMPFS:
        expect(f"file system at {place}", "tmpfs", mounts.get(place, ["", "", "none"])[2])
    _limits(spec, observed["limits"], expect)
    return found


def _disk_differences(spec: SandboxSpec, inspected: dict[str, Any], observed: dict[str, Any]) -> list[str]:
    """Check that the workspace is the requested capped file system. Skipped for gVisor, which shows its own there."""
    cap = disk_cap(inspected)
    if cap in {disk_quota.QuotaBackend.NONE, disk_quota.QuotaBackend.COUNTED} or spec.profile.runtime != "runc":
        return []
    found = [mount for mount in observed["mounts"] if mount[0] == spec.profile.workspace]
    _, options, kind = found[-1] if found else ("", "", "none")
    wanted = {"nosuid", "nodev"}
    file_system = "ext4" if cap is disk_quota.QuotaBackend.LOOP else "tmpfs"
    if kind == file_system and wanted <= set(options.split(",")):
        return []
    return [f"kernel: the workspace is {kind} ({options}), asked {file_system} with {','.join(sorted(wanted))}"]


def _shared_workspace_differences(spec: SandboxSpec, observed: dict[str, Any]) -> list[str]:
    """Check that another sandbox's workspace is mounted read-only."""
    if spec.borrows is None:
        return []
    found = [mount for mount in observed["mounts"] if mount[0] == spec.borrows.place]
    seen = found[-1][1].split(",")[0] if found else "none"
    return [] if seen == "ro" else [f"kernel: the workspace that is only read is mounted {seen!r}, expected 'ro'"]


def _limits(spec: SandboxSpec, limits: dict[str, Any], expect: Any) -> None:
    """Compare the cgroup's limits. gVisor shows none, so there only the engine's report is checked."""
    for word, asked in (("memory_bytes", spec.profile.memory_bytes), ("pids", spec.profile.pids)):
        seen = limits.get(word)
        if seen is not None:
            # The kernel rounds memory down to whole pages.
            page = 4096 if word == "memory_bytes" else 1
            expect(f"cgroup limit of {word}", asked // page * page, "max" if seen in _UNLIMITED else int(seen))
    if limits.get("cpu") is not None:  # v2: quota and period; v1: only the quota, for the engine's period
        quota, _, period = limits["cpu"].partition(" ")
        seen_cpus = quota if quota in ("max", "-1") else int(quota) / int(period or PERIOD_US)
        expect("cgroup limit of cpus", int(spec.profile.cpus * PERIOD_US) / PERIOD_US, seen_cpus)
