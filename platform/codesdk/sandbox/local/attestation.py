"""Attests a local sandbox: compares what the kernel reports with the spec, and lists what isn't enforced."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from typing import Any

from codesdk.domain.attestation import ExecSeparation
from codesdk.sandbox.isolation import kernel_facts
from codesdk.sandbox.isolation.disk_quota import QuotaBackend
from codesdk.sandbox.isolation.spec import RESERVED_PIDS
from codesdk.sandbox.local import cgroups
from codesdk.sandbox.local.cgroups import Cgroup, Controller
from codesdk.sandbox.local.confinement import Confinement, Isolation
from codesdk.sandbox.local.launch import tools_uid
from codesdk.sandbox.local.processes import Identity
from codesdk.sandbox.port import HOST, Attestation, SandboxSpec
from codesdk.sandbox.profiles.profile import Profile

PAGE = os.sysconf("SC_PAGE_SIZE")
"""Page size in bytes; the kernel rounds memory limits to it."""
NAMESPACES = ("net", "pid", "ipc", "uts", "mnt")


def shared_namespaces(inner: int) -> tuple[str, ...]:
    """Return the namespaces that a process shares with this one. Read from /proc here, not reported by the sandbox."""
    return tuple(name for name in NAMESPACES if _namespace(inner, name) == _namespace(os.getpid(), name))


def _namespace(pid: int, name: str) -> str:
    return os.readlink(f"/proc/{pid}/ns/{name}")  # noqa: PTH115 - it is no path but a name


def read_caps(group: Cgroup, process: Identity | None) -> dict[Controller, int | float]:
    """Return the kernel's caps of the whole sandbox: bytes, CPUs, processes. Empty if its runner isn't in them."""
    if process is None or not group.directories or not group.holds(process.pid):
        return {}
    found: dict[Controller, int | float] = {}
    for control, text in group.limits().items():
        words = text.split()
        if words[0] not in ("max", "-1"):
            found[control] = int(words[0]) / cgroups.PERIOD_US if control is Controller.CPU else int(words[0])
    return found


def cap_differences(
    spec: SandboxSpec, found: dict[Controller, int | float], wanted: Collection[Controller]
) -> tuple[str, ...]:
    """Return one sentence per requested cap that the kernel doesn't have."""
    profile = spec.profile
    asked = {
        Controller.MEMORY: profile.memory_bytes // PAGE * PAGE,
        Controller.CPU: int(profile.cpus * cgroups.PERIOD_US) / cgroups.PERIOD_US,
        Controller.PIDS: profile.pids,
    }
    return tuple(
        f"kernel: the cap of {control.value} is {found.get(control, 'none')}, expected {value}"
        for control, value in asked.items()
        if control in wanted and found.get(control) != value
    )


def differences(
    spec: SandboxSpec,
    confinement: Confinement,
    observed: dict[str, Any],
    shared: tuple[str, ...],
    *,
    filtered: bool,
    caps: Mapping[Controller, int | float],
) -> tuple[str, ...]:
    """Return one sentence per difference; empty if the sandbox matches its spec."""
    status, uid = observed["status"], str(tools_uid(spec, confinement))
    found: list[str] = []

    def expect(word: str, asked: object, seen: object) -> None:
        if asked != seen:
            found.append(f"kernel: {word} is {seen!r}, expected {asked!r}")

    expect("uids of a tool", [uid] * 4, status.get("Uid", "").split()[:4])
    expect("the tool in the uid_map", True, kernel_facts.is_mapped(tools_uid(spec, confinement), observed["uid_map"]))
    for word in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
        expect(f"{word} of a tool", 0, int(status.get(word, "1"), 16))
    expect("NoNewPrivs of a tool", "1", status.get("NoNewPrivs"))
    expect("Seccomp of a tool", "2" if filtered else "0", status.get("Seccomp"))
    rlimits = observed["rlimits"]
    if Controller.MEMORY not in caps:
        expect("limit of a tool's data", str(spec.profile.memory_bytes), rlimits.get("Max data size"))
    expect("limit of a tool's core files", "0", rlimits.get("Max core file size"))
    if confinement.apart:
        expect("gids of a tool", [uid] * 4, status.get("Gid", "").split()[:4])
        expect("groups of a tool", "", status.get("Groups", "").replace(uid, "").strip())
        expect("processes of a tool", str(spec.profile.pids - RESERVED_PIDS), rlimits.get("Max processes"))
    forbidden = {"become_root", "write_root", *(("signal_runner", "read_runner_memory") if confinement.apart else ())}
    for attempt, outcome in observed["attempts"].items():
        if attempt in forbidden and outcome == "ALLOWED":
            found.append(f"kernel: a tool was allowed to {attempt.replace('_', ' ')}")
    if confinement.apart and confinement.isolation is Isolation.NONE:
        # Not checked with bubblewrap, which leaves the bounding set full; no-new-privileges, checked above, covers it.
        expect("capabilities beyond those granted", 0, kernel_facts.ungranted_capabilities(status))
    if confinement.isolation is Isolation.BUBBLEWRAP:
        expect("namespaces shared with this machine", (), shared)
        expect("network interfaces", ["lo"], observed["interfaces"])
        _expect_mounts(expect, spec, observed)
    return tuple(found)


def _expect_mounts(expect: Callable[[str, object, object], None], spec: SandboxSpec, observed: dict[str, Any]) -> None:
    mounts = {mount[0]: mount for mount in observed["mounts"]}
    expect("the root's mount", "ro", mounts.get("/", ["", "?"])[1].split(",")[0])
    expect("/usr", "ro", mounts.get("/usr", ["", "?"])[1].split(",")[0])
    expect("a mount at the workspace", True, spec.profile.workspace in mounts)
    for place in ("/tmp", "/run", "/dev/shm"):  # noqa: S108 - mount points inside
        expect(f"file system at {place}", "tmpfs", mounts.get(place, ["", "", "none"])[2])


def attestation(
    spec: SandboxSpec,
    confinement: Confinement,
    observed: dict[str, Any],
    *,
    disk_cap: QuotaBackend,
    caps: Mapping[Controller, int | float],
) -> Attestation:
    """Build the attestation to record, with what is and isn't enforced."""
    mounts = {mount[0]: mount for mount in observed["mounts"]}
    facts = kernel_facts.kernel_facts(observed)
    enforced, not_enforced = sentences(
        spec,
        confinement,
        filtered=observed["status"].get("Seccomp") == "2",
        separation=facts["exec_separation"],
        disk_cap=disk_cap,
        caps=caps,
    )
    return Attestation(
        **facts,
        read_only_root=mounts.get("/", ["", "?"])[1].split(",")[0] == "ro",
        memory_bytes=int(caps.get(Controller.MEMORY, 0)),
        pids_limit=int(caps.get(Controller.PIDS, spec.profile.pids if confinement.apart else 0)),
        runtime="bubblewrap" if confinement.isolation is Isolation.BUBBLEWRAP else "plain",
        image=spec.image,
        disk_cap=disk_cap.value,
        environment=HOST,
        enforced=enforced,
        not_enforced=not_enforced,
    )


def sentences(
    spec: SandboxSpec,
    confinement: Confinement,
    *,
    filtered: bool,
    separation: ExecSeparation,
    disk_cap: QuotaBackend,
    caps: Mapping[Controller, int | float],
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what is enforced and what isn't, for people."""
    isolated, apart, profile = confinement.isolation is Isolation.BUBBLEWRAP, confinement.apart, spec.profile
    facts = (
        (
            isolated,
            "network: its own, with nothing but loopback",
            "network: NOT isolated; tools reach what this machine reaches",
        ),
        (
            isolated,
            "files: the system read-only, an own /tmp, and the workspace as the only writable part of this machine",
            "files: NOT isolated; tools read and write what their user may, all over this machine",
        ),
        (isolated, "processes: its own, no others are seen", "processes: tools see those of this machine"),
        (
            apart,
            f"user: tools run as uid {tools_uid(spec, confinement)}, apart from the runner and from every other sandbox",
            "user: tools run as the user that runs CodeSDK; "
            + (
                "they can stop and forge the runner of their own sandbox"
                if isolated
                else "they can stop and forge the runner, read the operator's key and approve their own calls"
            ),
        ),
        (
            filtered,
            "system calls: a list of dangerous ones is refused",
            "system calls: none is refused (unknown machine)",
        ),
        (
            separation is ExecSeparation.FULL,
            "execs: a process can't open the memory, descriptors or environment of another exec's",
            "execs: a process can read the environment of another exec's"
            + (" and rewrite its memory" if separation is ExecSeparation.NONE else ""),
        ),
        (True, "privileges: no capability, and none can be gained", ""),
        (True, f"each process: {profile.open_files} open files, no core", ""),
        (
            Controller.MEMORY in caps,
            f"memory: at most {profile.memory_bytes} bytes, for the sandbox as a whole",
            f"memory: each process {profile.memory_bytes} bytes of data; many together can take all that there is",
        ),
        (
            Controller.CPU in caps,
            f"CPU: at most {profile.cpus:g}, for the sandbox as a whole",
            "CPU: no cap; a sandbox can take all that there is",
        ),
        (
            Controller.PIDS in caps or apart,
            f"processes: at most {profile.pids}",
            "processes: counted with all others of this user, so only roughly",
        ),
        (disk_cap is not QuotaBackend.NONE, _disk_sentence(profile, disk_cap), "workspace: no cap on its size"),
        (False, "", "the system: tools run this machine's programs and kernel, not an image's"),
    )
    return (
        tuple(yes for holds, yes, _ in facts if holds),
        tuple(no for holds, _, no in facts if not holds),
    )


def _disk_sentence(profile: Profile, cap: QuotaBackend) -> str:
    how = (
        "in memory"
        if cap is QuotaBackend.TMPFS
        else "counted: what passes it is ended, and may be a little over it by then"
    )
    return f"workspace: at most {profile.workspace_bytes} bytes, {how}"
