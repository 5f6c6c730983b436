"""`Sandboxes` on a Docker engine: a thin executor of what `spec` says.

Names are deterministic and every step can be repeated, so whatever is interrupted is either taken up by the next open
of the same owner or removed by a sweep.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from http import HTTPStatus
from pathlib import Path
from typing import Any

from docker.errors import APIError, NotFound

from codesdk.errors import Fault
from codesdk.sandbox import attest, disk, lending
from codesdk.sandbox import spec as specs
from codesdk.sandbox.disk import Cap, Facts
from codesdk.sandbox.egress.service import Egress
from codesdk.sandbox.engine import Engine
from codesdk.sandbox.fate import fate, unanswered
from codesdk.sandbox.faults import (
    EngineRefused,
    ImageUnusable,
    IsolationDrift,
    RuntimeMissing,
    SandboxGone,
    SandboxPaused,
    StopRefused,
)
from codesdk.sandbox.forgotten import end_forgotten
from codesdk.sandbox.images import check_image
from codesdk.sandbox.link import LinkLost
from codesdk.sandbox.loop import LoopDisks
from codesdk.sandbox.port import Gone, SandboxSpec, Swept
from codesdk.sandbox.profile import Profile
from codesdk.sandbox.residents import Residents
from codesdk.sandbox.session import RunnerSandbox
from codesdk.sandbox.surroundings import Surroundings

_ALIVE = ("running", "paused")
_REMOVAL_S = 30.0
"""How long the engine may take to finish a removal that somebody began."""


class DockerSandboxes:
    """Sandboxes of one installation on one engine."""

    surroundings = Surroundings()

    def __init__(
        self, instance: str, engine: Engine, *, workspaces: Path | None = None, egress: Egress | None = None
    ) -> None:
        """Workspaces: where files of capped workspaces may lie; None where there shall be none."""
        self._instance = instance
        self._engine = engine
        self._egress = egress
        self._disks = LoopDisks(workspaces) if workspaces is not None else None
        self._facts: Facts | None = None
        self._residents: Residents[RunnerSandbox] = Residents(self._remove)

    # -- open and reattach ------------------------------------------------------------------------------------------

    def open(self, spec: SandboxSpec) -> RunnerSandbox:
        """Create and start, or take up what an interrupted open left; see the port."""
        if spec.instance != self._instance:
            raise ValueError(f"a spec of instance {spec.instance} on sandboxes of {self._instance}")
        return self._residents.open(spec, self._open)

    def _open(self, spec: SandboxSpec) -> RunnerSandbox:
        name = specs.name_of(spec.instance, spec.owner)
        found = self._inspect(name)
        if found is not None and not (self._is_ours(found, spec) and self._has_its_disk(found, name)):
            self._remove(spec.owner)
            found = None
        if found is None:
            self._create(spec)
        elif found["State"]["Status"] == "paused":
            self.resume(spec.owner)
        elif found["State"]["Status"] != "running":
            self._end_forgotten(name, str(found["Id"]))
            if found["State"]["Status"] != "created":
                raise fate(self._engine, spec.owner, found)
        return self._enter(spec, name)

    def _enter(self, spec: SandboxSpec, name: str) -> RunnerSandbox:
        sandbox = self._sandbox(spec)
        stream = self._engine.attach(name)  # before the start: nothing that the runner says is lost
        try:
            self._start(name, spec)
            sandbox.use(stream)
        except LinkLost as error:
            said = f"{error} {stream.said()}".strip()
            raise unanswered(self._engine, spec.image, self._inspect(name), said) from error
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
        """A container that was never started mounts what its volume names: after a reboot another one's device."""
        if found["State"]["Status"] != "created" or attest.disk_cap(found) is not Cap.LOOP:
            return True
        with self._engine.doing("inspect a volume"):
            options = self._engine.api.inspect_volume(name).get("Options") or {}
        return self._disks is not None and options.get("device") == self._disks.device(name)

    def _create(self, spec: SandboxSpec, kept: Cap | None = None) -> None:
        """`kept`: what caps a workspace that is there already."""
        name = specs.name_of(spec.instance, spec.owner)
        check_image(self._engine, spec.image)
        self._check_runtime(spec.profile.runtime)
        cap = kept or disk.choose(spec.profile, self.disk_facts())
        labels = {**specs.labels(spec), disk.LABEL: cap.value}
        options = disk.volume_options(spec, cap, self._loop_device(spec, name) if cap is Cap.LOOP else "")
        with self._engine.doing("create a volume"):
            made = self._engine.api.create_volume(name, driver="local", driver_opts=options, labels=labels)
            if (made.get("Options") or {}) != options:
                # An interrupted open left it; the engine answers with what there is. Its device may be another's now.
                self._engine.api.remove_volume(name, force=True)
                self._engine.api.create_volume(name, driver="local", driver_opts=options, labels=labels)
        with self._engine.doing("create a container", image=spec.image):
            self._engine.client.containers.create(
                **{**specs.container(spec, counted=cap is Cap.COUNTED), "labels": labels}
            )
        lender = spec.borrows.owner if spec.borrows else ""
        if lender and not lending.is_there(self._engine, spec.instance, lender):
            self._end(spec.owner)
            volume = specs.name_of(spec.instance, lender)
            self._until_gone(volume, lambda: self._engine.api.remove_volume(volume, force=True))
            raise SandboxGone(lender, "its workspace is gone")

    def _loop_device(self, spec: SandboxSpec, name: str) -> str:
        assert self._disks is not None  # noqa: S101 - `choose` says loop only where there is a place
        profile = spec.profile
        return self._disks.make(name, size=profile.workspace_bytes, inodes=profile.workspace_inodes, uid=spec.tool_uid)

    def disk_facts(self) -> Facts:
        """What the machine offers to cap workspaces with; looked at once."""
        if self._facts is None:
            if self._disks is None:
                self._facts = Facts()
            else:
                with self._engine.doing("say what it is"):
                    info, runs_us = self._engine.api.info(), self._engine.runs_us()
                self._facts = disk.find_facts(self._engine.endpoint, info, runs_us=runs_us)
        return self._facts

    def _check_runtime(self, runtime: str) -> None:
        if runtime == Profile().runtime:
            return  # every engine has its own
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
        observed = sandbox.observe()
        with self._engine.doing("inspect a container"):
            inspected = self._engine.api.inspect_container(name)
        try:
            wrong = attest.differences(spec, inspected, observed)
            attestation = attest.attestation(inspected, observed)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            wrong = (f"what was read back cannot be understood: {error!r}",)
        if wrong:
            sandbox.end("it is not isolated as asked")
            raise IsolationDrift(wrong)
        sandbox.attested(attestation)

    def reattach(self, owner: str, generation: int) -> RunnerSandbox | Gone:
        """The running sandbox of that owner; see the port."""
        name = specs.name_of(self._instance, owner)
        found = self._inspect(name)
        if found is None:
            return Gone(owner=owner, reason="there is no such container")
        if found["State"]["Status"] not in _ALIVE:
            self._end_forgotten(name, str(found["Id"]))
            return Gone(owner=owner, reason=fate(self._engine, owner, found).reason)
        labels = found["Config"]["Labels"] or {}
        if labels.get(specs.LABEL_INSTANCE) != self._instance or labels.get(specs.LABEL_OWNER) != owner:
            return Gone(owner=owner, reason="the container of that name is not ours")
        if found["State"]["Status"] == "paused":
            self.resume(owner)
        spec = specs.from_label(labels.get(specs.LABEL_SPEC, ""), generation)
        sandbox = self._sandbox(spec)
        try:
            self._attest(sandbox, spec, name)
        except SandboxGone as gone:
            return Gone(owner=owner, reason=gone.reason)
        except IsolationDrift:
            self._remove(owner)
            raise
        return self._residents.keep(sandbox)

    def _sandbox(self, spec: SandboxSpec) -> RunnerSandbox:
        name = specs.name_of(spec.instance, spec.owner)

        def ended() -> str | SandboxGone | None:
            try:
                found = self._inspect(name)
                is_alive = found is not None and found["State"]["Status"] in _ALIVE
                return None if is_alive else fate(self._engine, spec.owner, found)
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
                raise fate(self._engine, spec.owner, found)
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
        """Freeze its processes; see the port."""
        self._unless_conflict("pause a container", owner, self._engine.api.pause)

    def resume(self, owner: str) -> None:
        """Let them go on; see the port."""
        self._unless_conflict("unpause a container", owner, self._engine.api.unpause)

    def _unless_conflict(self, what: str, owner: str, ask: Callable[[str], object]) -> None:
        try:
            with self._engine.doing(what):
                ask(specs.name_of(self._instance, owner))
        except EngineRefused as refused:
            match _status(refused):
                case HTTPStatus.CONFLICT | HTTPStatus.INTERNAL_SERVER_ERROR:
                    # It is so already, or it ended: Docker 20.10 says 500 where a later one says 409.
                    found = self._inspect(specs.name_of(self._instance, owner))
                    if found is None or found["State"]["Status"] not in _ALIVE:
                        raise fate(self._engine, owner, found) from refused
                    if found["State"]["Paused"] != (ask == self._engine.api.pause):
                        raise
                case HTTPStatus.NOT_FOUND:
                    raise SandboxGone(owner, "its container was removed") from refused
                case _:
                    raise

    # -- stopping and starting ---------------------------------------------------------------------------------------

    def stop(self, owner: str) -> None:
        """Remove the container and keep the workspace; see the port."""
        if self._kept(owner) is Cap.TMPFS:
            raise StopRefused(owner)
        self._residents.evict(owner, "it was stopped", self._end)

    def start(self, spec: SandboxSpec) -> RunnerSandbox:
        """A new container over the workspace that was kept; see the port."""
        return self._residents.open(spec, self._start_again, self._end)

    def _start_again(self, spec: SandboxSpec) -> RunnerSandbox:
        kept = self._kept(spec.owner)
        if kept is Cap.TMPFS:
            raise SandboxGone(spec.owner, "its workspace was in memory")
        self._end(spec.owner)
        self._create(spec, kept)
        return self._enter(spec, specs.name_of(spec.instance, spec.owner))

    def _kept(self, owner: str) -> Cap:
        """What caps the workspace that is there."""
        name = specs.name_of(self._instance, owner)
        files = self._disks.names() if self._disks is not None else set()
        with self._engine.doing("inspect a volume"):
            try:
                found = self._engine.api.inspect_volume(name)
            except NotFound:
                if name in files:
                    return Cap.LOOP  # of such a one the volume only names the device, and is made anew for another
                raise SandboxGone(owner, "its workspace is gone") from None
        cap = Cap((found.get("Labels") or {}).get(disk.LABEL, Cap.NONE.value))
        if cap is Cap.LOOP and name not in files:
            raise SandboxGone(owner, "its workspace is gone")
        return cap

    def _end(self, owner: str) -> None:
        name = specs.name_of(self._instance, owner)
        self._until_gone(name, lambda: self._engine.api.remove_container(name, force=True, v=True))
        self._end_forgotten(name)

    def _end_forgotten(self, name: str, container: str = "") -> None:
        disks = self._disks
        end_forgotten(name, device=lambda: disks.device(name) if disks is not None else None, container=container)

    # -- removing ----------------------------------------------------------------------------------------------------

    def destroy(self, owner: str) -> None:
        """Remove container and workspace; see the port."""
        self._residents.destroy(owner)

    def _remove(self, owner: str) -> None:
        name = specs.name_of(self._instance, owner)
        self._end(owner)
        self._until_gone(name, lambda: lending.take_back(self._engine, self._instance, owner))
        if self._disks is not None:
            self._disks.release(name)  # last: as long as a volume names the device, it must be nobody else's

    def _until_gone(self, name: str, remove: Callable[[], object]) -> None:
        deadline = time.monotonic() + _REMOVAL_S
        while True:
            try:
                with self._engine.doing(f"remove {name}"):
                    remove()
            except EngineRefused as refused:
                status = _status(refused)
                if status == HTTPStatus.NOT_FOUND:
                    return
                # Conflict: somebody else removes it already, or its container is not quite gone. A paused one of gVisor's
                # is killed, and the engine does not see it at once.
                is_ending = status == HTTPStatus.CONFLICT or "is zombie" in refused.message
                if not is_ending or time.monotonic() > deadline:
                    raise
            else:
                return
            time.sleep(0.05)

    def sweep(self, alive: Collection[str] | Callable[[], Collection[str]]) -> Swept:
        """Remove what no living owner has; see the port."""
        wanted = {"label": f"{specs.LABEL_INSTANCE}={self._instance}"}
        with self._engine.doing("list what there is"):
            containers = self._engine.api.containers(all=True, filters=wanted)
            volumes = self._engine.api.volumes(filters=wanted)["Volumes"] or []
        prefix = specs.name_of(self._instance, "")
        files = self._disks.names() if self._disks is not None else set()
        kept = self._residents.kept(alive)
        gone_containers = {_owner(item) for item in containers} - kept
        gone_volumes = {_owner(item) for item in volumes} - kept
        gone_volumes |= {name.removeprefix(prefix) for name in files if name.startswith(prefix)} - kept
        gone = self._residents.sweep(gone_containers | gone_volumes)
        return Swept(containers=tuple(sorted(gone_containers & gone)), volumes=tuple(sorted(gone_volumes & gone)))

    def close(self) -> None:
        """Let go of the engine; sandboxes live on."""
        self._residents.close()
        self._engine.close()


def _status(refused: EngineRefused) -> int | None:
    cause = refused.__cause__
    return cause.status_code if isinstance(cause, APIError) else None


def _owner(item: dict[str, Any]) -> str:
    return str((item.get("Labels") or {}).get(specs.LABEL_OWNER, ""))
