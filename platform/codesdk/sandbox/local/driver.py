"""`Sandboxes` as processes of this machine.

A sandbox is a directory, created first and removed last, so that the owner's next open resumes an interrupted
operation, or a sweep cleans it up.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import platform
import subprocess
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, NamedTuple

from codesdk.sandbox.channel.connection import ConnectionLost
from codesdk.sandbox.channel.open_sandboxes import OpenSandboxes
from codesdk.sandbox.channel.sandbox import RunnerSandbox
from codesdk.sandbox.egress.service import EgressService
from codesdk.sandbox.isolation import disk_quota
from codesdk.sandbox.isolation import spec as specs
from codesdk.sandbox.local import attestation, confinement, launch, processes, seccomp
from codesdk.sandbox.local.confinement import Confinement, Isolation
from codesdk.sandbox.local.faults import (
    FreezeFailed,
    LocalNotSeparated,
    LocalRefused,
    LocalSandboxOff,
    LocalStartFailed,
    NotLocalImage,
    RemovalFailed,
)
from codesdk.sandbox.local.shim_stream import ShimStream
from codesdk.sandbox.local.state_directory import StateDirectories, StateDirectory
from codesdk.sandbox.port import HOST, Attestation, ExecutionEnvironment, SandboxMissing, SandboxSpec, SweepResult
from codesdk.sandbox.port.faults import IsolationDrift, SandboxGone, StopRefused
from codesdk.sandbox.profiles.profile import Profile, WorkspaceMode
from codesdk.settings import Settings

START_S = 60.0
"""How long the shim may take to start Python twice and bubblewrap once; 0.2 s on an idle machine."""
SHIM_EXIT_S = 2.0
"""How long a shim may take to notice that its runner ended."""
KILL_S = 20.0
"""How long killed processes may take to end."""


class SandboxProcesses(NamedTuple):
    """The processes of a sandbox that its shim recorded; empty if they are of another boot."""

    shim: processes.Identity | None = None
    runner: processes.Identity | None = None
    inner: processes.Identity | None = None

    @property
    def known(self) -> tuple[processes.Identity, ...]:
        """Processes in the order to kill them: the PID namespace's first process takes the rest along."""
        return tuple(member for member in (self.inner, self.runner, self.shim) if member is not None)


class LocalSandboxes:
    """The sandboxes of one installation on this machine."""

    def __init__(
        self, instance: str, root: Path, found: Confinement | None = None, *, egress: EgressService | None = None
    ) -> None:
        """`root`: a private directory (`data_dir/local`). `found`: this machine's confinement; None to detect it."""
        self._instance = instance
        self.confinement = found or confinement.detect_confinement()
        is_isolated = self.confinement.isolation is Isolation.BUBBLEWRAP
        self._directories = StateDirectories(root, apart=self.confinement.apart and not is_isolated)
        self._egress = egress
        self.image = host_image()
        """The image id that sessions are pinned to; stands for this machine's system."""
        self.execution_environment = ExecutionEnvironment(
            environment=HOST,
            network=self.confinement.network,
            mounts=(Profile().workspace,) if is_isolated else ("/",),
        )
        self._open_sandboxes = OpenSandboxes(self._remove)

    # -- open and reattach --------------------------------------------------------------------------------------------

    def open(self, spec: SandboxSpec) -> RunnerSandbox:
        """Create and start a sandbox, or continue an interrupted open; see the port."""
        if spec.instance != self._instance:
            raise ValueError(f"a spec of instance {spec.instance} on sandboxes of {self._instance}")
        return self._open_sandboxes.open(spec, self._open)

    def _open(self, spec: SandboxSpec) -> RunnerSandbox:
        self._check(spec)
        state = self._directories.of(spec.owner)
        if state.record() is not None and specs.same_sandbox(spec, state.spec()):
            if (reason := self._ended(state)) is not None:
                raise SandboxGone(spec.owner, reason)
            self.resume(spec.owner)
        else:
            # Nothing exists, or an interrupted open left it before anything ran, or it has another spec.
            self._remove(spec.owner)
            state = self._launch(spec)
        return self._connect(spec, state)

    def _connect(self, spec: SandboxSpec, state: StateDirectory) -> RunnerSandbox:
        sandbox = self._sandbox(spec, state)
        try:
            sandbox.use(ShimStream(state.directory, state.stderr_tail))
        except (ConnectionLost, OSError) as error:
            raise LocalStartFailed(spec.owner, state.stderr_tail() or str(error)) from error
        self._attest(sandbox, spec, state)
        return sandbox

    def _check(self, spec: SandboxSpec) -> None:
        if spec.image != self.image:
            raise NotLocalImage(spec.image)
        profile = spec.profile
        if profile.runtime != Profile().runtime:
            raise LocalRefused(
                f"The profile {profile.name} needs the container runtime {profile.runtime}, which local sandboxes don't have."
            )
        if profile.workspace_mode is not WorkspaceMode.RW:
            raise LocalRefused(
                f"The profile {profile.name} needs a read-only or no workspace, which local sandboxes can't enforce."
            )
        if spec.borrows is not None:
            raise LocalRefused(
                "A read-only mount of another workspace needs a container; here tools could write to it."
            )
        if profile.egress and self.confinement.network:
            raise LocalRefused(f"The profile {profile.name} allows some hosts; here nothing would hold tools to them.")

    def _launch(self, spec: SandboxSpec, *, kept: bool = False) -> StateDirectory:
        """Start the sandbox's processes. `kept`: use the existing workspace."""
        try:
            state = self._directories.make(spec.owner, kept=kept)
            state.write("spec.json", specs.container_labels(spec)[specs.LABEL_SPEC])
            state.write("launch.json", json.dumps(launch.prepare(spec, self.confinement, state)))
            started = subprocess.run(
                [sys.executable, "-P", "-m", "codesdk.sandbox.local.shim", str(state.directory)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                timeout=START_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise LocalStartFailed(spec.owner, str(error)) from error
        if started.returncode:
            raise LocalStartFailed(spec.owner, started.stderr.strip())
        return state

    def _attest(self, sandbox: RunnerSandbox, spec: SandboxSpec, state: StateDirectory) -> None:
        def compare(observed: dict[str, Any]) -> tuple[Attestation, tuple[str, ...]]:
            members = _read_processes(state)
            shared = attestation.shared_namespaces(members.inner.pid) if members.inner else attestation.NAMESPACES
            caps = attestation.read_caps(state.group(), members.inner or members.runner)
            wrong = (
                *attestation.differences(
                    spec, self.confinement, observed, shared, filtered=seccomp.supported(), caps=caps
                ),
                *attestation.cap_differences(spec, caps, set(state.group().directories)),
            )
            disk_cap = self._disk_cap(spec)
            return attestation.attestation(spec, self.confinement, observed, disk_cap=disk_cap, caps=caps), wrong

        sandbox.attest(compare)

    def _disk_cap(self, spec: SandboxSpec) -> disk_quota.QuotaBackend:
        return launch.disk_cap(spec.profile, self.confinement)

    def reattach(self, owner: str, generation: int) -> RunnerSandbox | SandboxMissing:
        """Return the owner's running sandbox; see the port."""
        state = self._directories.of(owner)
        if state.record() is None:
            return SandboxMissing(owner=owner, reason="there is no such sandbox on this machine")
        if (reason := self._ended(state)) is not None:
            return SandboxMissing(owner=owner, reason=reason)
        try:
            self.resume(owner)
            spec = specs.spec_from_label(state.spec(), generation)
            if spec.instance != self._instance:
                return SandboxMissing(owner=owner, reason="the sandbox of that name is not ours")
            sandbox = self._sandbox(spec, state)
            self._attest(sandbox, spec, state)
        except SandboxGone as gone:
            return SandboxMissing(owner=owner, reason=gone.message)
        except IsolationDrift:
            self._remove(owner)
            raise
        return self._open_sandboxes.register(sandbox)

    def _sandbox(self, spec: SandboxSpec, state: StateDirectory) -> RunnerSandbox:
        return RunnerSandbox(
            spec,
            lambda: ShimStream(state.directory, state.stderr_tail),
            lambda: self._ended(state),
            paused=state.group().is_frozen,
            egress=self._egress,
            resolve=launch.path_resolver(spec, self.confinement, state),
            foreign_threads=lambda: launch.foreign_threads(self.confinement),
        )

    def _ended(self, state: StateDirectory) -> str | None:
        """Return why the sandbox has ended; None while it lives."""
        if state.record() is None:
            return "it was removed"
        shim = _read_processes(state).shim
        if shim is not None and processes.is_alive(shim):
            return None
        return state.end_reason() or "its processes were killed, or this machine was restarted"

    # -- pausing ------------------------------------------------------------------------------------------------------

    def pause(self, owner: str) -> None:
        """Freeze the sandbox's cgroup; see the port.

        Does nothing without one: on resume, a process that we stopped couldn't be distinguished from one that a tool stopped.
        """
        self._freeze(owner, frozen=True)

    def resume(self, owner: str) -> None:
        """Thaw the sandbox's cgroup; see the port."""
        self._freeze(owner, frozen=False)

    def _freeze(self, owner: str, *, frozen: bool) -> None:
        state = self._directories.of(owner)
        if (reason := self._ended(state)) is not None:
            raise SandboxGone(owner, reason)
        try:
            state.group().freeze(frozen=frozen)
        except OSError as error:
            raise FreezeFailed(owner, str(error)) from error

    # -- stopping and starting ----------------------------------------------------------------------------------------

    def stop(self, owner: str) -> None:
        """End the processes and keep the workspace; see the port."""
        state = self._directories.of(owner)
        if not state.workspace.is_dir():
            raise SandboxGone(owner, "its workspace is gone")
        if (label := state.spec()) and self._disk_cap(specs.spec_from_label(label, 1)) is disk_quota.QuotaBackend.TMPFS:
            raise StopRefused(owner)
        self._open_sandboxes.evict(owner, "it was stopped", self._clear)

    def start(self, spec: SandboxSpec) -> RunnerSandbox:
        """Start new processes on the kept workspace; see the port."""
        return self._open_sandboxes.open(spec, self._restart, self._clear)

    def _restart(self, spec: SandboxSpec) -> RunnerSandbox:
        self._check(spec)
        if (
            not self._directories.of(spec.owner).workspace.is_dir()
            or self._disk_cap(spec) is disk_quota.QuotaBackend.TMPFS
        ):
            raise SandboxGone(spec.owner, "its workspace is gone")
        self._clear(spec.owner)
        return self._connect(spec, self._launch(spec, kept=True))

    def _clear(self, owner: str) -> None:
        self._end(owner)
        self._directories.clear(owner)

    # -- removing -----------------------------------------------------------------------------------------------------

    def destroy(self, owner: str) -> None:
        """End the processes and remove the workspace; see the port."""
        self._open_sandboxes.destroy(owner)

    def _remove(self, owner: str) -> None:
        self._end(owner)
        self._directories.remove(owner)

    def _end(self, owner: str) -> None:
        state = self._directories.of(owner)
        group = state.group()
        with contextlib.suppress(OSError):
            group.freeze(frozen=False)  # frozen processes don't die
        self._kill(state)
        try:
            if not group.end(KILL_S):
                raise RemovalFailed(owner, "its processes do not end")
            group.remove(KILL_S)
        except OSError as error:
            raise RemovalFailed(owner, f"its cgroup: {error}") from error

    def _kill(self, state: StateDirectory) -> None:
        members = _read_processes(state)
        first = members.inner or members.runner
        if first is not None and members.shim is not None:
            # The shim then reaps its children and exits, so this machine's init gets no zombies.
            processes.kill(first)
            processes.wait_gone(members.shim, SHIM_EXIT_S)
        for member in members.known:
            processes.kill(member)
        if not all(processes.wait_gone(member, KILL_S) for member in members.known):
            raise RemovalFailed(state.owner, "its processes do not end")
        if not state.group().directories and (self.confinement.isolation is Isolation.NONE or members.inner is None):
            self._kill_escaped(state)

    def _kill_escaped(self, state: StateDirectory) -> None:
        """Kill escaped processes, found by user or environment; for sandboxes without PID namespace and cgroup."""
        if state.record() is None:
            return  # nothing was started
        if self.confinement.apart:
            uid = specs.spec_from_label(state.spec(), 1).tool_uid
            ended = processes.kill_user(uid, launch.KILL_UID, KILL_S)
        else:
            mark = f"{launch.OWNER_VARIABLE}={state.owner}".encode()
            ended = processes.kill_all(lambda: processes.with_environment(mark), KILL_S)
        if not ended:
            raise RemovalFailed(state.owner, "its tools' processes do not end")

    def sweep(self, alive: Collection[str] | Callable[[], Collection[str]]) -> SweepResult:
        """Remove sandboxes without a live owner; see the port."""
        found = self._directories.owners()
        kept = self._open_sandboxes.kept(alive)
        orphans = [owner for owner in found if owner not in kept]
        started = [owner for owner in orphans if self._directories.of(owner).record() is not None]
        gone = self._open_sandboxes.sweep(orphans)
        return SweepResult(
            containers=tuple(owner for owner in started if owner in gone),
            volumes=tuple(owner for owner in orphans if owner in gone),
        )

    def close(self) -> None:
        """Disconnect from all sandboxes, which keep running."""
        self._open_sandboxes.close()


def open_local(
    settings: Settings, found: Confinement | None = None, *, egress: EgressService | None = None
) -> LocalSandboxes:
    """Return the installation's local sandboxes, if the operator has enabled them.

    Raises:
        LocalSandboxOff: they aren't enabled.
        LocalNotSeparated: bubblewrap doesn't work here, and the operator hasn't allowed running without it.
    """
    if not settings.is_local:
        raise LocalSandboxOff
    found = found or confinement.detect_confinement("" if settings.local_sandbox == "plain" else None)
    if settings.local_sandbox == "on" and found.isolation is Isolation.NONE:
        raise LocalNotSeparated(found.why_not)
    return LocalSandboxes(settings.instance_id(), settings.data_dir / "local", found, egress=egress)


def sweep_local(settings: Settings) -> SweepResult:
    """Remove all local sandboxes of the installation, even where no new one could be created any more."""
    found = confinement.detect_confinement("" if settings.local_sandbox == "plain" else None)
    with contextlib.closing(LocalSandboxes(settings.instance_id(), settings.data_dir / "local", found)) as made:
        return made.sweep(())


def host_image() -> str:
    """Return an id of this machine's system in the form of an image id; changes when the system is upgraded."""
    system = platform.freedesktop_os_release() if Path("/etc/os-release").exists() else {}
    facts = [platform.machine(), system.get("ID", ""), system.get("VERSION_ID", ""), sys.prefix, sys.version]
    return f"sha256:{hashlib.sha256(json.dumps(['codesdk-local', *facts]).encode()).hexdigest()}"


def _read_processes(state: StateDirectory) -> SandboxProcesses:
    record: dict[str, Any] = state.record() or {}
    if record.get("boot") != processes.boot_id():
        return SandboxProcesses()
    keys = {name: name for name in SandboxProcesses._fields} | {"shim": "porter"}  # as earlier versions wrote it
    found = {name: record.get(key) for name, key in keys.items()}
    return SandboxProcesses(**{name: processes.Identity(*values) if values else None for name, values in found.items()})
