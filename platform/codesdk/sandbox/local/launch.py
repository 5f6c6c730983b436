"""Prepares a sandbox's files and the shim's start command from a `SandboxSpec`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from codesdk.sandbox.isolation import disk_quota
from codesdk.sandbox.isolation import spec as specs
from codesdk.sandbox.local import bwrap, seccomp
from codesdk.sandbox.local.cgroups import Cgroup, Controller
from codesdk.sandbox.local.confinement import Confinement, Isolation
from codesdk.sandbox.local.faults import LocalRefused
from codesdk.sandbox.local.processes import pids_of_user
from codesdk.sandbox.local.state_directory import StateDirectory
from codesdk.sandbox.packaging import bundle
from codesdk.sandbox.port import SandboxSpec
from codesdk.sandbox.profiles.profile import Profile

KILL_UID = 265_536
"""Real uid of the process that stops a sandbox's processes. Above every tool uid (`store.LAST_UID`) and unused.
Containers use `nobody`, which without a PID namespace may have processes of this machine."""
SYSTEM_PYTHONS = ("/usr/bin/python3", "/usr/local/bin/python3")
OWNER_VARIABLE = "CODESDK_SANDBOX"
"""Variable that identifies escaped processes which share our uid. A tool can remove it."""


def tools_uid(spec: SandboxSpec, confinement: Confinement) -> int:
    """Return the uid that tools run as."""
    return spec.tool_uid if confinement.apart else os.getuid()


def workspace_path(spec: SandboxSpec, confinement: Confinement, place: StateDirectory) -> str:
    """Return the workspace's path as tools see it."""
    return spec.profile.workspace if confinement.isolation is Isolation.BUBBLEWRAP else str(place.workspace)


def path_resolver(spec: SandboxSpec, confinement: Confinement, place: StateDirectory) -> Callable[[str], str]:
    """Return a function that maps paths in the profile's workspace to the same paths as tools see them."""
    named, actual = spec.profile.workspace, workspace_path(spec, confinement, place)
    return lambda path: actual + path[len(named) :] if path == named or path.startswith(f"{named}/") else path


def runner_settings(spec: SandboxSpec, confinement: Confinement, place: StateDirectory) -> dict[str, Any]:
    """Return the settings passed to the runner."""
    isolated = confinement.isolation is Isolation.BUBBLEWRAP
    found = specs.runner_settings(spec, counted=disk_cap(spec.profile, confinement) is disk_quota.QuotaBackend.COUNTED)
    uid = tools_uid(spec, confinement)
    limits = dict(specs.rlimits(spec))
    if Controller.MEMORY not in place.group().directories:
        # A limit per process, because nothing caps the whole sandbox's memory.
        limits["data"] = spec.profile.memory_bytes
    limits["nproc"] += foreign_threads(confinement)
    temporary = "/tmp" if isolated else str(place.workspace.parent / "tmp")  # noqa: S108 - the sandbox's own
    environment = {
        **specs.TOOL_ENV,
        "HOME": f"{temporary}/home",
        "TMPDIR": temporary,
        "PATH": f"{Path(sys.executable).parent}:{bwrap.SYSTEM_PATH}",
        OWNER_VARIABLE: place.owner,
    }
    return {
        **found,
        "uid": uid,
        "gid": uid if confinement.apart else os.getgid(),
        "workspace": workspace_path(spec, confinement, place),
        "limits": limits,
        "env": environment,
        "killer_uid": KILL_UID,
        "cgroup": cgroup_view(confinement, place),
    }


def prepare(spec: SandboxSpec, confinement: Confinement, place: StateDirectory) -> dict[str, Any]:
    """Prepare the sandbox's files; returns the shim's instructions."""
    group = _make_cgroup(spec, confinement, place)
    argv = bundle.command(runner_settings(spec, confinement, place), runner_python(confinement))
    if confinement.isolation is Isolation.BUBBLEWRAP:
        argv = bwrap.command(_bwrap_config(spec, confinement, place), argv)
    else:
        temporary = place.workspace.parent / "tmp"
        temporary.mkdir(mode=0o700)
        if confinement.apart:
            os.chown(temporary, spec.tool_uid, spec.tool_uid)
    return {
        "argv": argv,
        "isolated": confinement.isolation is Isolation.BUBBLEWRAP,
        "cgroups": group.procs_files,
        "seccomp": seccomp.supported(),
        "env": {"PATH": bwrap.SYSTEM_PATH, "LANG": "C.UTF-8", OWNER_VARIABLE: place.owner},
    }


def _make_cgroup(spec: SandboxSpec, confinement: Confinement, place: StateDirectory) -> Cgroup:
    name = specs.container_name(spec.instance, spec.owner)
    group = confinement.groups.of(name)
    # Recorded before it is created: a later worker, possibly in another cgroup, must find it.
    place.write("cgroups.json", json.dumps({control: str(path) for control, path in group.directories.items()}))
    confinement.groups.make(name, spec.profile)
    view = place.directory / "cgroup"
    for part, path in group.views.items():
        if part:
            view.mkdir(mode=0o700, exist_ok=True)
        (view / part if part else view).symlink_to(path)
    return group


def cgroup_view(confinement: Confinement, place: StateDirectory) -> str:
    """Return where the runner reads its sandbox's cgroup files; empty if they would be this machine's."""
    if not place.group().directories:
        return ""
    return bwrap.CGROUP_MOUNT if confinement.isolation is Isolation.BUBBLEWRAP else str(place.directory / "cgroup")


def runner_python(confinement: Confinement) -> str:
    """Return the interpreter for the runner, whose file threads import modules with the tool's rights.

    Raises:
        LocalRefused: other users can execute no Python here, and bubblewrap isn't used.
    """
    ours = os.path.realpath(sys.executable)
    if confinement.isolation is Isolation.BUBBLEWRAP or not confinement.apart:
        return ours
    for candidate in (ours, *SYSTEM_PYTHONS):
        if Path(candidate).exists() and is_world_executable(Path(candidate).resolve()):
            return candidate
    raise LocalRefused(
        f"Tools run as another user, who can't execute {ours}, and there is no other Python.",
        advice="Install python3 from the system's packages, or bubblewrap.",
    )


def is_world_executable(path: Path) -> bool:
    """Return whether every user can run this program."""
    return all(place.stat().st_mode & 0o001 for place in (path, *path.parents))


def _bwrap_config(spec: SandboxSpec, confinement: Confinement, place: StateDirectory) -> bwrap.BwrapConfig:
    uid, gid = tools_uid(spec, confinement), spec.tool_uid if confinement.apart else os.getgid()
    etc = place.directory / "etc"
    etc.mkdir(mode=0o755)
    home = "/tmp/home"  # noqa: S108 - the sandbox's own
    (etc / "passwd").write_text(f"root:x:0:0:root:/:/bin/sh\ntool:x:{uid}:{gid}:tool:{home}:/bin/sh\n")
    (etc / "group").write_text(f"root:x:0:\ntool:x:{gid}:\n")
    for name in ("passwd", "group"):
        (etc / name).chmod(0o644)
    return bwrap.BwrapConfig(
        program=confinement.program,
        etc=etc,
        source=place.workspace,
        workspace=spec.profile.workspace,
        apart=confinement.apart,
        tmp_bytes=spec.profile.tmp_bytes,
        shm_bytes=spec.profile.shm_bytes,
        workspace_bytes=spec.profile.workspace_bytes
        if disk_cap(spec.profile, confinement) is disk_quota.QuotaBackend.TMPFS
        else 0,
        cgroup=place.group().views,
    )


def disk_cap(profile: Profile, confinement: Confinement) -> disk_quota.QuotaBackend:
    """Return the workspace's quota backend, see `disk_quota.choose_backend`; counted for tmpfs without bubblewrap."""
    cap = disk_quota.choose_backend(profile, disk_quota.QuotaSupport())
    return (
        disk_quota.QuotaBackend.COUNTED
        if cap is disk_quota.QuotaBackend.TMPFS and confinement.isolation is Isolation.NONE
        else cap
    )


def foreign_threads(confinement: Confinement) -> int:
    """Return how many other threads count towards the tools' limit: all of this user's, if tools run as this user.

    Without adding them, the profile's limit could be too low to start anything.
    """
    return 0 if confinement.apart else _threads_of(os.getuid())


def _threads_of(uid: int) -> int:
    """Return the current number of a user's threads; processes that end meanwhile count as 0."""
    count = 0
    for pid in pids_of_user(uid):
        try:
            count += len(os.listdir(f"/proc/{pid}/task"))  # noqa: PTH208 - names are all that is needed
        except OSError:
            continue
    return count
