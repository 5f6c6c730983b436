"""Turns a `SandboxSpec` into engine options. Pure.

Every grant is listed here with its reason; everything else is denied.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from docker.types import LogConfig, Mount, Ulimit

from codesdk.sandbox import seccomp
from codesdk.sandbox.docker import lost_containers
from codesdk.sandbox.packaging import bundle
from codesdk.sandbox.port import ProcessLimits, SandboxSpec
from codesdk.sandbox.profiles.profile import Profile, Seccomp, WorkspaceMode


@dataclass(frozen=True)
class Runtime:
    """How a container runtime differs from runc, whose values are the defaults."""

    is_linux: bool = True
    """Whether the host's kernel is the sandbox's: /proc shows no-new-privileges, seccomp, cgroups and the engine's mounts."""
    has_subreapers: bool = True
    """Whether any process can be a subreaper. Otherwise the runner must be PID 1, which gets all orphans."""
    has_inotify: bool = True
    """Whether inotify reports every change. Otherwise watches poll."""
    pids_each: int = 1
    """Host processes per sandbox process, which the engine's limit counts."""
    pids_own: int = 0
    """Host processes of the runtime itself."""

    def pids_limit(self, pids: int) -> int:
        """The engine's pids limit that leaves room for `pids` sandbox processes."""
        return pids * self.pids_each + self.pids_own


RUNTIMES = {
    # Debian's runsc of 2022 on the ptrace platform: 56 host processes for one, 358 for 40, 884 for 100. Beyond the
    # limit the sandbox ends.
    "runsc": Runtime(is_linux=False, has_subreapers=False, has_inotify=False, pids_each=10, pids_own=128),
}


def find_runtime(name: str) -> Runtime:
    """The runtime's properties; runc's if unknown."""
    return RUNTIMES.get(name, Runtime())


CAPABILITIES = {
    "SETUID": "the runner becomes the tool's uid before it executes a tool, and for file operations; no way back is kept",
    "SETGID": "likewise for the group",
    "KILL": "the runner ends processes that run as the tool's uid",
    "CHOWN": "once at the start, for the root of the workspace: a new volume is root's; the runner then drops it for good",
}

TMPFS = {
    "/tmp": "rw,exec,nosuid,nodev,mode=1777,size={tmp_bytes},nr_inodes=65536",  # noqa: S108 - a mount point inside
    "/run": "rw,nosuid,nodev,noexec,mode=755,size=1048576,nr_inodes=1024",
}
"""Writable places under the read-only root. /tmp may execute (the engine's default is noexec): builds and
test runners start programs from it."""

RESERVED_PIDS = 55
"""Processes of the pids limit that tools cannot take (RLIMIT_NPROC): init, runner, fork server, killer and file threads,
and for each of up to 24 running execs a subreaper and a waiting leader. Measured: with 55 left free the runner forked
at once under a fork bomb. With egress one thread more looks up who connects."""

RUNNER_OPEN_FILES = 4096
"""The container's own limit; tools get the profile's. The runner holds 4 descriptors an exec and 1 a staged file."""

EGRESS_PORT = 3128
"""Port of the egress proxy on the container's loopback; the customary HTTP proxy port."""

LABEL_INSTANCE = "codesdk.instance"
LABEL_OWNER = "codesdk.owner"
LABEL_SPEC = "codesdk.spec"
LABEL_BORROWS = "codesdk.borrows"
"""Label of a container that mounts another sandbox's workspace: the owner."""
TOOL_ENV = {
    "HOME": "/tmp/home",  # noqa: S108
    "TMPDIR": "/tmp",  # noqa: S108
    "USER": "tool",
    "LANG": "C.UTF-8",
    # git takes no directory of the workspace for a repository only because it looks like a bare one: its configuration
    # names programs, and may have been written as any file.
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "safe.bareRepository",
    "GIT_CONFIG_VALUE_0": "explicit",
}
"""Base environment of every exec."""


def container_name(instance: str, owner: str) -> str:
    """Name of container and volume; unique per installation and owner."""
    return f"codesdk-{hashlib.sha256(instance.encode()).hexdigest()[:8]}-{owner}"


def container_labels(spec: SandboxSpec) -> dict[str, str]:
    """Labels of our engine objects; a restarted worker reads the spec from them."""
    text = spec.model_dump_json(exclude={"generation"})
    owner = {LABEL_BORROWS: spec.borrows.owner} if spec.borrows else {}
    return {LABEL_INSTANCE: spec.instance, LABEL_OWNER: spec.owner, LABEL_SPEC: text, **owner}


def volumes(spec: SandboxSpec) -> list[tuple[str, str, bool]]:
    """Volume, mount point and writability of every mount except `TMPFS`."""
    own = (container_name(spec.instance, spec.owner), spec.profile.workspace, True)
    lent = spec.borrows
    return [own, *([(container_name(spec.instance, lent.owner), lent.place, False)] if lent else [])]


def rlimits(spec: SandboxSpec) -> dict[str, int]:
    """Limits of each tool process, by the names of resource.RLIMIT_*."""
    profile = spec.profile
    limits = {
        "nproc": profile.pids - RESERVED_PIDS,
        "nofile": profile.open_files,
        "core": 0,
        "memlock": 64 * 1024,
    }
    if find_runtime(profile.runtime).is_linux:
        limits["msgqueue"] = 64 * 1024  # gVisor has neither the limit nor, unless asked, the queues
    if profile.file_bytes:
        limits["fsize"] = profile.file_bytes
    return limits


def exec_limits(limits: ProcessLimits, runtime: str) -> dict[str, int]:
    """An exec's own rlimits, in the same names."""
    # gVisor lets a process map what it likes beyond RLIMIT_DATA. All of its addresses are more than its memory, so there
    # it gets less than was said.
    memory = "data" if find_runtime(runtime).is_linux else "as"
    asked = {
        memory: limits.memory_bytes,
        "nproc": limits.pids - RESERVED_PIDS if limits.pids is not None else None,
        "nofile": limits.open_files,
        "fsize": limits.file_bytes,
    }
    return {name: value for name, value in asked.items() if value is not None}


def spool_bytes(spec: SandboxSpec) -> int:
    """Most output stored until acknowledged; it is in the sandbox's memory, so at most a quarter of that."""
    return min(4 * spec.profile.keep_output_bytes, spec.profile.memory_bytes // 4)


def runner_settings(spec: SandboxSpec, *, counted: bool = False) -> dict[str, object]:
    """Settings passed to the runner. Tools can read them (/proc/PID/cmdline), so they hold no secrets.

    Counted: nothing else holds the workspace's cap.
    """
    settings: dict[str, object] = {
        lost_containers.NAME_SETTING: container_name(spec.instance, spec.owner),
        "uid": spec.tool_uid,
        "gid": spec.tool_uid,
        "workspace": spec.profile.workspace,
        "limits": rlimits(spec),
        "spool_bytes": spool_bytes(spec),
        "max_read_bytes": spec.profile.max_read_bytes,
        "env": TOOL_ENV,
    }
    if not find_runtime(spec.profile.runtime).has_subreapers:
        settings["subreapers"] = False
    if not find_runtime(spec.profile.runtime).has_inotify:
        settings["inotify"] = False
    if spec.profile.workspace_mode is not WorkspaceMode.RW:
        settings["workspace_mode"] = spec.profile.workspace_mode.value
    if counted:
        settings["workspace_cap"] = {"bytes": spec.profile.workspace_bytes, "inodes": spec.profile.workspace_inodes}
    if spec.profile.egress:
        settings["egress"] = EGRESS_PORT  # which hosts is the worker's business: the runner only carries bytes
    return settings


def security_options(profile: Profile, *, apart: bool = False) -> list[str]:
    """no-new-privileges and the inline seccomp profile; a remote engine has no file of ours.

    `apart`: it reads another sandbox's workspace.
    """
    return ["no-new-privileges", *([seccomp.option(apart=apart)] if profile.seccomp is Seccomp.CODESDK else [])]


def container_options(spec: SandboxSpec, *, counted: bool = False) -> dict[str, Any]:
    """Keyword arguments of `containers.create`; `counted` as in `runner_settings`."""
    profile = spec.profile
    name = container_name(spec.instance, spec.owner)
    return {
        "name": name,
        "image": spec.image,
        "runtime": profile.runtime,
        # Ours, whatever the image says. An image's HEALTHCHECK ran as root every second; its ENTRYPOINT is anyone's.
        "entrypoint": bundle.command(runner_settings(spec, counted=counted)),
        "command": [],
        "user": "0:0",
        "working_dir": "/",
        "healthcheck": {"test": ["NONE"]},
        "stop_signal": "SIGKILL",
        "labels": container_labels(spec),
        "hostname": "sandbox",
        "init": find_runtime(profile.runtime).has_subreapers,  # without: orphans must become the runner's
        # detach makes StdinOnce false: without it the engine closes the runner's stdin when a worker disconnects.
        "detach": True,
        "stdin_open": True,
        "tty": False,
        "restart_policy": {"Name": "no"},  # a restarted runner has forgotten what it ran: at-most-once would be gone
        "network_mode": "none",
        "ipc_mode": "private",
        "privileged": False,
        "cap_drop": ["ALL"],
        "cap_add": list(CAPABILITIES),
        "security_opt": security_options(profile, apart=spec.borrows is not None),
        "read_only": True,
        "tmpfs": {place: options.format(tmp_bytes=profile.tmp_bytes) for place, options in TMPFS.items()},
        # no_copy: what the image has at that path is not the workspace, and would be root's.
        "mounts": [
            Mount(target=place, source=volume, type="volume", no_copy=True, read_only=not writable)
            for volume, place, writable in volumes(spec)
        ],
        "shm_size": profile.shm_bytes,
        "mem_limit": profile.memory_bytes,
        "memswap_limit": profile.memory_bytes + profile.swap_bytes,
        "nano_cpus": int(profile.cpus * 1e9),
        "pids_limit": find_runtime(profile.runtime).pids_limit(profile.pids),
        "ulimits": [
            Ulimit(name="nofile", soft=RUNNER_OPEN_FILES, hard=RUNNER_OPEN_FILES),
            Ulimit(name="core", soft=0, hard=0),
        ],
        "log_config": LogConfig(type="none"),  # stdout is the protocol; the engine would keep a copy of it on disk
    }


def spec_from_label(label: str, generation: int) -> SandboxSpec:
    """The spec of an existing container, from its label, with this generation.

    Raises:
        ValueError: the label is none of ours.
    """
    return SandboxSpec.model_validate({**json.loads(label), "generation": generation})


def same_sandbox(spec: SandboxSpec, label: str) -> bool:
    """Whether a container's label describes the same sandbox as this spec."""
    try:
        return spec_from_label(label, spec.generation) == spec
    except ValueError:
        return False
