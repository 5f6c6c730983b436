"""Turns a `SandboxSpec` into engine options. No I/O.

Lists every grant with its reason; everything else is denied.
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
    """How a container runtime differs from runc. The defaults are runc's."""

    is_linux: bool = True
    """Whether sandboxes use the host's kernel: /proc then shows no-new-privileges, seccomp, cgroups, engine mounts."""
    has_subreapers: bool = True
    """Whether a process can be a subreaper. Otherwise the runner must be PID 1, which gets all orphans."""
    has_inotify: bool = True
    """Whether inotify reports every change. If not, watches poll."""
    pids_each: int = 1
    """Host processes per sandbox process; the engine's limit counts host processes."""
    pids_own: int = 0
    """Host processes of the runtime itself."""

    def pids_limit(self, pids: int) -> int:
        """Return the engine's pids limit that leaves room for `pids` sandbox processes."""
        return pids * self.pids_each + self.pids_own


RUNTIMES = {
    # Measured with Debian's runsc of 2022 on the ptrace platform: 56 host processes for 1, 358 for 40, 884 for 100.
    # At the limit the whole sandbox ends.
    "runsc": Runtime(is_linux=False, has_subreapers=False, has_inotify=False, pids_each=10, pids_own=128),
}


def find_runtime(name: str) -> Runtime:
    """Return the runtime's properties; runc's if it is unknown."""
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
"""Writable mounts on the read-only root. /tmp allows execution (the engine's default is noexec), because builds and
test runners start programs from it."""

RESERVED_PIDS = 55
"""Part of the pids limit that RLIMIT_NPROC keeps from tools: init, runner, fork server, killer and file threads, and a
subreaper and a pending leader for each of up to 24 execs. Measured: with 55 free, the runner forked without delay
during a fork bomb. Egress adds one thread, which identifies peers."""

RUNNER_OPEN_FILES = 4096
"""The runner's limit; tools get the profile's. The runner uses 4 descriptors per exec and 1 per staged file."""

EGRESS_PORT = 3128
"""Port of the egress proxy on the sandbox's loopback; the customary HTTP proxy port."""

HOSTNAME = "sandbox"
"""It resolves to the loopback address: programs look their own host up."""

LABEL_INSTANCE = "codesdk.instance"
LABEL_OWNER = "codesdk.owner"
LABEL_SPEC = "codesdk.spec"
LABEL_BORROWS = "codesdk.borrows"
"""Label of a container that mounts another sandbox's workspace: that sandbox's owner."""
TOOL_ENV = {
    "HOME": "/tmp/home",  # noqa: S108
    "TMPDIR": "/tmp",  # noqa: S108
    "USER": "tool",
    "LANG": "C.UTF-8",
    # Stops git from treating a workspace directory as a bare repository: a tool could have written its configuration,
    # which names programs to run.
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "safe.bareRepository",
    "GIT_CONFIG_VALUE_0": "explicit",
}
"""Base environment of every exec."""


def container_name(instance: str, owner: str) -> str:
    """Return the name of container and volume; unique per installation and owner."""
    return f"codesdk-{hashlib.sha256(instance.encode()).hexdigest()[:8]}-{owner}"


def container_labels(spec: SandboxSpec) -> dict[str, str]:
    """Return the labels of our engine objects; a restarted worker reads the spec from them."""
    text = spec.model_dump_json(exclude={"generation"})
    owner = {LABEL_BORROWS: spec.borrows.owner} if spec.borrows else {}
    return {LABEL_INSTANCE: spec.instance, LABEL_OWNER: spec.owner, LABEL_SPEC: text, **owner}


def volumes(spec: SandboxSpec) -> list[tuple[str, str, bool]]:
    """Return volume, mount point and writability of every mount except `TMPFS`."""
    own = (container_name(spec.instance, spec.owner), spec.profile.workspace, True)
    lent = spec.borrows
    return [own, *([(container_name(spec.instance, lent.owner), lent.place, False)] if lent else [])]


def rlimits(spec: SandboxSpec) -> dict[str, int]:
    """Return the limits of each tool process, named as in resource.RLIMIT_*."""
    profile = spec.profile
    limits = {
        "nproc": profile.pids - RESERVED_PIDS,
        "nofile": profile.open_files,
        "core": 0,
        "memlock": 64 * 1024,
    }
    if find_runtime(profile.runtime).is_linux:
        limits["msgqueue"] = 64 * 1024  # gVisor lacks the limit and, by default, the queues
    if profile.file_bytes:
        limits["fsize"] = profile.file_bytes
    return limits


def exec_limits(limits: ProcessLimits, runtime: str) -> dict[str, int]:
    """Return an exec's own rlimits, named as in `rlimits`."""
    # gVisor doesn't enforce RLIMIT_DATA. RLIMIT_AS also counts mappings that use no memory, so there a process gets
    # less than the limit.
    memory = "data" if find_runtime(runtime).is_linux else "as"
    asked = {
        memory: limits.memory_bytes,
        "nproc": limits.pids - RESERVED_PIDS if limits.pids is not None else None,
        "nofile": limits.open_files,
        "fsize": limits.file_bytes,
    }
    return {name: value for name, value in asked.items() if value is not None}


def spool_bytes(spec: SandboxSpec) -> int:
    """Return the maximum stored output. It uses the sandbox's memory, so at most a quarter of that."""
    return min(4 * spec.profile.keep_output_bytes, spec.profile.memory_bytes // 4)


def runner_settings(spec: SandboxSpec, *, counted: bool = False) -> dict[str, object]:
    """Return the settings passed to the runner. Tools can read them (/proc/PID/cmdline), so they contain no secrets.

    `counted`: the runner must enforce the workspace's cap.
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
    if not spec.profile.background_processes:
        settings["background_processes"] = False
    if spec.profile.workspace_mode is not WorkspaceMode.RW:
        settings["workspace_mode"] = spec.profile.workspace_mode.value
    if counted:
        settings["workspace_cap"] = {"bytes": spec.profile.workspace_bytes, "inodes": spec.profile.workspace_inodes}
    if spec.profile.egress:
        settings["egress"] = EGRESS_PORT  # the worker checks the hosts; the runner only forwards bytes
    return settings


def security_options(profile: Profile, *, apart: bool = False) -> list[str]:
    """Return no-new-privileges and the inline seccomp profile; a remote engine has no files of ours.

    `apart`: the sandbox reads another sandbox's workspace.
    """
    return ["no-new-privileges", *([seccomp.option(apart=apart)] if profile.seccomp is Seccomp.CODESDK else [])]


def container_options(spec: SandboxSpec, *, counted: bool = False) -> dict[str, Any]:
    """Return the keyword arguments of `containers.create`; `counted` as in `runner_settings`."""
    profile = spec.profile
    name = container_name(spec.instance, spec.owner)
    return {
        "name": name,
        "image": spec.image,
        "runtime": profile.runtime,
        # Override the image: its HEALTHCHECK would run as root every second, its ENTRYPOINT is untrusted.
        "entrypoint": bundle.command(runner_settings(spec, counted=counted)),
        "command": [],
        "user": "0:0",
        "working_dir": "/",
        "healthcheck": {"test": ["NONE"]},
        "stop_signal": "SIGKILL",
        "labels": container_labels(spec),
        "hostname": HOSTNAME,
        "extra_hosts": {HOSTNAME: "127.0.0.1"},
        "init": find_runtime(profile.runtime).has_subreapers,  # without subreapers the runner must be PID 1
        # detach sets StdinOnce to false; otherwise the engine closes the runner's stdin when a worker disconnects.
        "detach": True,
        "stdin_open": True,
        "tty": False,
        "restart_policy": {"Name": "no"},  # a restarted runner doesn't know what it ran, which breaks at-most-once
        "network_mode": "none",
        "ipc_mode": "private",
        "privileged": False,
        "cap_drop": ["ALL"],
        "cap_add": list(CAPABILITIES),
        "security_opt": security_options(profile, apart=spec.borrows is not None),
        "read_only": True,
        "tmpfs": {place: options.format(tmp_bytes=profile.tmp_bytes) for place, options in TMPFS.items()},
        # no_copy: the image's files at that path must not appear in the workspace, where root would own them.
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
        "log_config": LogConfig(type="none"),  # stdout is the protocol; the engine would store a copy on disk
    }


def spec_from_label(label: str, generation: int) -> SandboxSpec:
    """Return the spec of an existing container, from its label, with this generation.

    Raises:
        ValueError: the label isn't one of ours.
    """
    return SandboxSpec.model_validate({**json.loads(label), "generation": generation})


def same_sandbox(spec: SandboxSpec, label: str) -> bool:
    """Return whether a container's label describes the same sandbox as this spec."""
    try:
        return spec_from_label(label, spec.generation) == spec
    except ValueError:
        return False
