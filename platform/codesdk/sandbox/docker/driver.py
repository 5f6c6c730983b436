"""`Sandboxes` on a Docker engine. The container options come from `isolation.spec`.

Names are deterministic and every step is idempotent: the owner's next open continues an interrupted operation, or a
sweep cleans it up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from http import HTTPStatus
from pathlib import Path
from typing import Any

from docker.errors import APIError, NotFound

from codesdk.errors import Fault
from codesdk.sandbox.channel.connection import ConnectionLost
from codesdk.sandbox.channel.open_sandboxes import OpenSandboxes
from codesdk.sandbox.channel.sandbox import RunnerSandbox
from codesdk.sandbox.docker import attestation as attest
from codesdk.sandbox.docker.container_state import ended_fault, failed_start_fault
from codesdk.sandbox.docker.engine import Engine
from codesdk.sandbox.docker.loop_disks import LoopDisks
from codesdk.sandbox.docker.lost_containers import kill_lost_container
from codesdk.sandbox.egress.service import EgressService
from codesdk.sandbox.images.builder import check_image
from codesdk.sandbox.isolation import disk_quota
from codesdk.sandbox.isolation import spec as specs
from codesdk.sandbox.isolation.disk_quota import QuotaBackend, QuotaSupport
from codesdk.sandbox.port import Attestation, ExecutionEnvironment, SandboxMissing, SandboxSpec, SweepResult
from codesdk.sandbox.port.faults import (
    EngineRefused,
    ImageUnusable,
    IsolationDrift,
    RuntimeMissing,
    SandboxGone,
    SandboxPaused,
    StopRefused,
)
from codesdk.sandbox.profiles.profile import Profile

_ALIVE = ("running", "paused")
_REMOVAL_S = 30.0
"""How long to wait for a removal that is already in progress."""


class DockerSandboxes:
    """The sandboxes of one installation on one engine."""

    execution_environment = ExecutionEnvironment()

    def __init__(
        self, instance: str, engine: Engine, *, workspaces: Path | None = None, egress: EgressService | None = None
    ) -> None:
        """`workspaces`: directory for image files of capped workspaces; None to use no image files."""
        self._instance = instance
        self._engine = engine
        self._egress = egress
        self._disks = LoopDisks(workspaces) if workspaces is not None else None
        self._quota_support: QuotaSupport | None = None
        self._open_sandboxes = OpenSandboxes(self._remove)

    # -- open and reattach ------------------------------------------------------------------------------------------

    def open(self, spec: SandboxSpec) -> RunnerSandbox:
        """Create and start a sandbox, or continue an interrupted open; see the port."""
        if spec.instance != self._instance:
            raise ValueError(f"a spec of instance {spec.instance} on sandboxes of {self._instance}")
        return self._open_sandboxes.open(spec, self._open)

    def _open(self, spec: SandboxSpec) -> RunnerSandbox:
        name = specs.container_name(spec.instance, spec.owner)
        found = self._inspect(name)
        if found is not None and not (self._is_ours(found, spec) and self._has_its_disk(found, name)):
            self._remove(spec.owner)
            found = None
        if found is None:
            self._create(spec)
        elif found["State"]["Status"] == "paused":
            self.resume(spec.owner)
        elif found["State"]["Status"] != "running":
            self._kill_lost_container(name, str(found["Id"]))
            if found["State"]["Status"] != "created":
                raise ended_fault(self._engine, spec.owner, found)
        return self._start_and_attest(spec, name)

    def _start_and_attest(self, spec: SandboxSpec, name: str) -> RunnerSandbox:
        sandbox = self._sandbox(spec)
        stream = self._engine.attach(name)  # attach before the start, so that no output of the runner is lost
        try:
            self._start(name, spec)
            sandbox.use(stream)
        except ConnectionLost as error:
            output = f"{error} {stream.stderr_tail()}".strip()
            raise failed_start_fault(self._engine, spec.image, self._inspect(name), output) from error
        except BaseException:
            stream.close()
            raise
        self._attest(sandbox, spec, name)
        return sandbox

    def _is_ours(self, found: dict[str, Any], spec: SandboxSpec) -> bool:
        labels = found["Config"]["Labels"] or {}
        if labels.get(specs.LABEL_INSTANCE) != spec.instance or labels.get(specs.LABEL_OWNER) != spec.owner:
            raise EngineRefused("open a sandbox", f"its name is taken by another container ({found['Id'][:12]})")
        return specs.same_sandbox(spec, labels.get(specs.LABEL_SPEC, ""))

    def _has_its_disk(self, found: dict[str, Any], name: str) -> bool:
        """Return False if a never-started container's volume names another loop device, as after a reboot."""
        if found["State"]["Status"] != "created" or attest.disk_cap(found) is not QuotaBackend.LOOP:
            return True
        with self._engine.doing("inspect a volume"):
            options = self._engine.api.inspect_volume(name).get("Options") or {}
        return self._disks is not None and options.get("device") == self._disks.device(name)

    def _create(self, spec: SandboxSpec, kept: QuotaBackend | None = None) -> None:
        """Create volume and container. `kept`: backend of the existing workspace, if any."""
        name = specs.container_name(spec.instance, spec.owner)
        check_image(self._engine, spec.image)
        self._check_runtime(spec.profile.runtime)
        cap = kept or disk_quota.choose_backend(spec.profile, self.quota_support())
        labels = {**specs.container_labels(spec), disk_quota.LABEL: cap.value}
        options = disk_quota.volume_options(
            spec, cap, self._loop_device(spec, name) if cap is QuotaBackend.LOOP else ""
        )
        with self._engine.doing("create a volume"):
            made = self._engine.api.create_volume(name, driver="local", driver_opts=options, labels=labels)
            if (made.get("Options") or {}) != options:
                # Left by an interrupted open; the engine returns the old volume. Its device may be another's now.
                self._engine.api.remove_volume(name, force=True)
                self._engine.api.create_volume(name, driver="local", driver_opts=options, labels=labels)
        with self._engine.doing("create a container", image=spec.image):
            self._engine.client.containers.create(
                **{**specs.container_options(spec, counted=cap is QuotaBackend.COUNTED), "labels": labels}
            )
        sharer = spec.borrows.owner if spec.borrows else ""
        if sharer and not _volume_exists(self._engine, spec.instance, sharer):
            self._remove_container(spec.owner)
            volume = specs.container_name(spec.instance, sharer)
            self._retry_until_removed(volume, lambda: self._engine.api.remove_volume(volume, force=True))
            raise SandboxGone(sharer, "its workspace is gone")

    def _loop_device(self, spec: SandboxSpec, name: str) -> str:
        assert self._disks is not None  # noqa: S101 - `choose_backend` says loop only where there is a place
        profile = spec.profile
        return self._disks.make(name, size=profile.workspace_bytes, inodes=profile.workspace_inodes, uid=spec.tool_uid)

    def quota_support(self) -> QuotaSupport:
        """Return the machine's quota features; cached."""
        if self._quota_support is None:
            if self._disks is None:
                self._quota_support = QuotaSupport()
            else:
                with self._engine.doing("report its features"):
                    info, is_engine_container = self._engine.api.info(), self._engine.is_engine_container()
                self._quota_support = disk_quota.detect_support(
                    self._engine.endpoint, info, is_engine_container=is_engine_container
                )
        return self._quota_support

    def _check_runtime(self, runtime: str) -> None:
        if runtime == Profile().runtime:
            return  # every engine has its default runtime
        with self._engine.doing("list its runtimes"):
            known = self._engine.api.info().get("Runtimes") or {}
        if runtime not in known:
            raise RuntimeMissing(runtime, tuple(sorted(known)))

    def _start(self, name: str, spec: SandboxSpec) -> None:
        try:
            with self._engine.doing("start a container"):
                self._engine.api.start(name)
        except EngineRefused as refused:
            if "executable file not found" in refused.message:
                raise ImageUnusable(spec.image, refused.message) from refused
            raise

    def _attest(self, sandbox: RunnerSandbox, spec: SandboxSpec, name: str) -> None:
        def compare(observed: dict[str, Any]) -> tuple[Attestation, tuple[str, ...]]:
            with self._engine.doing("inspect a container"):
                inspected = self._engine.api.inspect_container(name)
            return attest.attestation(inspected, observed), attest.differences(spec, inspected, observed)

        sandbox.attest(compare)

    def reattach(self, owner: str, generation: int) -> RunnerSandbox | SandboxMissing:
        """Return the owner's running sandbox; see the port."""
        name = specs.container_name(self._instance, owner)
        found = self._inspect(name)
        if found is None:
            return SandboxMissing(owner=owner, reason="there is no such container")
        if found["State"]["Status"] not in _ALIVE:
            self._kill_lost_container(name, str(found["Id"]))
            return SandboxMissing(owner=owner, reason=ended_fault(self._engine, owner, found).reason)
        labels = found["Config"]["Labels"] or {}
        if labels.get(specs.LABEL_INSTANCE) != self._instance or labels.get(specs.LABEL_OWNER) != owner:
            return SandboxMissing(owner=owner, reason="the container of that name is not ours")
        if found["State"]["Status"] == "paused":
            self.resume(owner)
        spec = specs.spec_from_label(labels.get(specs.LABEL_SPEC, ""), generation)
        sandbox = self._sandbox(spec)
        try:
            self._attest(sandbox, spec, name)
        except SandboxGone as gone:
            return SandboxMissing(owner=owner, reason=gone.reason)
        except IsolationDrift:
            self._remove(owner)
            raise
        return self._open_sandboxes.register(sandbox)

    def _sandbox(self, spec: SandboxSpec) -> RunnerSandbox:
        name = specs.container_name(spec.instance, spec.owner)

        def ended() -> str | SandboxGone | None:
            try:
                found = self._inspect(name)
                is_alive = found is not None and found["State"]["Status"] in _ALIVE
                return None if is_alive else ended_fault(self._engine, spec.owner, found)
            except Fault as fault:
                return fault.message

        def paused() -> bool:
            found = self._inspect(name)
            return found is not None and found["State"]["Status"] == "paused"

        def connect() -> Any:
            found = self._inspect(name)
            if found is not None and found["State"]["Status"] == "paused":
                raise SandboxPaused(spec.owner)
            if found is None or found["State"]["Status"] != "running":
                raise ended_fault(self._engine, spec.owner, found)
            return self._engine.attach(name)

        return RunnerSandbox(spec, connect, ended, paused=paused, egress=self._egress)

    def _inspect(self, name: str) -> dict[str, Any] | None:
        with self._engine.doing("inspect a container"):
            try:
                found: dict[str, Any] = self._engine.api.inspect_container(name)
            except NotFound:
                return None
        return found

    # -- pausing ------------------------------------------------------------------------------------------------------

    def pause(self, owner: str) -> None:
        """Freeze all processes; see the port."""
        self._set_paused("pause a container", owner, self._engine.api.pause)

    def resume(self, owner: str) -> None:
        """Unfreeze all processes; see the port."""
        self._set_paused("unpause a container", owner, self._engine.api.unpause)

    def _set_paused(self, action: str, owner: str, request: Callable[[str], object]) -> None:
        """Pause or unpause; does nothing if the container is already in that state."""
        try:
            with self._engine.doing(action):
                request(specs.container_name(self._instance, owner))
        except EngineRefused as refused:
            match _status(refused):
                case HTTPStatus.CONFLICT | HTTPStatus.INTERNAL_SERVER_ERROR:
                    # Already in that state, or ended. Docker 20.10 returns 500 where later versions return 409.
                    found = self._inspect(specs.container_name(self._instance, owner))
                    if found is None or found["State"]["Status"] not in _ALIVE:
                        raise ended_fault(self._engine, owner, found) from refused
                    if found["State"]["Paused"] != (request == self._engine.api.pause):
                        raise
                case HTTPStatus.NOT_FOUND:
                    raise SandboxGone(owner, "its container was removed") from refused
                case _:
                    raise

    # -- stopping and starting ---------------------------------------------------------------------------------------

    def stop(self, owner: str) -> None:
        """Remove the container and keep the workspace; see the port."""
        if self._existing_backend(owner) is QuotaBackend.TMPFS:
            raise StopRefused(owner)
        self._open_sandboxes.evict(owner, "it was stopped", self._remove_container)

    def start(self, spec: SandboxSpec) -> RunnerSandbox:
        """Create a new container on the kept workspace; see the port."""
        return self._open_sandboxes.open(spec, self._restart, self._remove_container)

    def _restart(self, spec: SandboxSpec) -> RunnerSandbox:
        kept = self._existing_backend(spec.owner)
        if kept is QuotaBackend.TMPFS:
            raise SandboxGone(spec.owner, "its workspace was in memory")
        self._remove_container(spec.owner)
        self._create(spec, kept)
        return self._start_and_attest(spec, specs.container_name(spec.instance, spec.owner))

    def _existing_backend(self, owner: str) -> QuotaBackend:
        """Return the quota backend of the existing workspace."""
        name = specs.container_name(self._instance, owner)
        files = self._disks.names() if self._disks is not None else set()
        with self._engine.doing("inspect a volume"):
            try:
                found = self._engine.api.inspect_volume(name)
            except NotFound:
                if name in files:
                    return QuotaBackend.LOOP  # the volume only refers to the device and is created again
                raise SandboxGone(owner, "its workspace is gone") from None
        cap = QuotaBackend((found.get("Labels") or {}).get(disk_quota.LABEL, QuotaBackend.NONE.value))
        if cap is QuotaBackend.LOOP and name not in files:
            raise SandboxGone(owner, "its workspace is gone")
        return cap

    def _remove_container(self, owner: str) -> None:
        name = specs.container_name(self._instance, owner)
        self._retry_until_removed(name, lambda: self._engine.api.remove_container(name, force=True, v=True))
        self._kill_lost_container(name)

    def _kill_lost_container(self, name: str, container: str = "") -> None:
        disks = self._disks
        kill_lost_container(name, device=lambda: disks.device(name) if disks is not None else None, container=container)

    # -- removing ----------------------------------------------------------------------------------------------------

    def destroy(self, owner: str) -> None:
        """Remove container and workspace; see the port."""
        self._open_sandboxes.destroy(owner)

    def _remove(self, owner: str) -> None:
        name = specs.container_name(self._instance, owner)
        self._remove_container(owner)
        self._retry_until_removed(name, lambda: _remove_shared_volume(self._engine, self._instance, owner))
        if self._disks is not None:
            self._disks.release(name)  # last: a device that a volume refers to must not be reused

    def _retry_until_removed(self, name: str, remove: Callable[[], object]) -> None:
        deadline = time.monotonic() + _REMOVAL_S
        while True:
            try:
                with self._engine.doing(f"remove {name}"):
                    remove()
            except EngineRefused as refused:
                status = _status(refused)
                if status == HTTPStatus.NOT_FOUND:
                    return
                # Conflict: the removal is already in progress, or the volume's container still exists. "is zombie": the
                # engine hasn't noticed yet that a paused gVisor container was killed.
                is_already_removing = status == HTTPStatus.CONFLICT or "is zombie" in refused.message
                if not is_already_removing or time.monotonic() > deadline:
                    raise
            else:
                return
            time.sleep(0.05)

    def sweep(self, alive: Collection[str] | Callable[[], Collection[str]]) -> SweepResult:
        """Remove sandboxes without a live owner; see the port."""
        wanted = {"label": f"{specs.LABEL_INSTANCE}={self._instance}"}
        with self._engine.doing("list its containers and volumes"):
            containers = self._engine.api.containers(all=True, filters=wanted)
            volumes = self._engine.api.volumes(filters=wanted)["Volumes"] or []
        prefix = specs.container_name(self._instance, "")
        files = self._disks.names() if self._disks is not None else set()
        kept = self._open_sandboxes.kept(alive)
        gone_containers = {_owner(item) for item in containers} - kept
        gone_volumes = {_owner(item) for item in volumes} - kept
        gone_volumes |= {name.removeprefix(prefix) for name in files if name.startswith(prefix)} - kept
        gone = self._open_sandboxes.sweep(gone_containers | gone_volumes)
        return SweepResult(containers=tuple(sorted(gone_containers & gone)), volumes=tuple(sorted(gone_volumes & gone)))

    def close(self) -> None:
        """Disconnect from the engine. Sandboxes keep running."""
        self._open_sandboxes.close()
        self._engine.close()


def _status(refused: EngineRefused) -> int | None:
    cause = refused.__cause__
    return cause.status_code if isinstance(cause, APIError) else None


def _owner(item: dict[str, Any]) -> str:
    return str((item.get("Labels") or {}).get(specs.LABEL_OWNER, ""))


def _volume_exists(engine: Engine, instance: str, sharer: str) -> bool:
    """Return whether the shared workspace exists. The engine creates a missing volume, but without our labels."""
    with engine.doing("inspect a volume"):
        labels = engine.api.inspect_volume(specs.container_name(instance, sharer)).get("Labels") or {}
    return bool(labels.get(specs.LABEL_OWNER) == sharer)


def _remove_shared_volume(engine: Engine, instance: str, sharer: str) -> None:
    """Remove a workspace's volume. If containers that share it still exist, remove those and raise the conflict."""
    try:
        engine.api.remove_volume(specs.container_name(instance, sharer), force=True)
    except APIError as refused:
        if refused.status_code == HTTPStatus.CONFLICT:
            wanted = [f"{specs.LABEL_INSTANCE}={instance}", f"{specs.LABEL_BORROWS}={sharer}"]
            for each in engine.api.containers(all=True, filters={"label": wanted}):
                engine.api.remove_container(each["Id"], force=True, v=True)
        raise
