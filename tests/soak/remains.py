"""Leftovers of an installation on one engine and its machine: counted, and removed as a last resort."""

from __future__ import annotations

import threading
from collections.abc import Collection
from pathlib import Path

import shims
from codesdk.sandbox.docker.driver import DockerSandboxes
from codesdk.sandbox.docker.engine import Engine
from codesdk.sandbox.isolation.spec import LABEL_OWNER
from codesdk.sandbox.port import SweepResult
from codesdk.settings import Settings


class Remains:
    """Of the worker with these settings, on its engine."""

    def __init__(self, settings: Settings, *, exec_root: Path | None = None) -> None:
        """`exec_root`: of an engine of the test's own, whose processes are known by it; another's containers are watched."""
        self._settings = settings
        self._exec_root = exec_root
        self.engine = Engine(settings.docker_host)
        self._seen: set[str] = set()
        self._events = None if exec_root else self._follow()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    def _follow(self):
        filters = {"type": "container", "event": "create", "label": self._label}
        return self.engine.api.events(filters=filters, decode=True)

    def _watch(self) -> None:
        for event in self._events or ():
            self._seen.add(event["id"])

    @property
    def _label(self) -> str:
        return f"codesdk.instance={self._settings.instance_id()}"

    @property
    def containers_made(self) -> int:
        """How many it ever made, as far as they were watched."""
        return len(self._seen)

    def sweep(self, alive: Collection[str] = ()) -> SweepResult:
        """Remove all that has no living owner."""
        place = self._settings.workspaces_dir()
        sandboxes = DockerSandboxes(self._settings.instance_id(), Engine(self._settings.docker_host), workspaces=place)
        try:
            return sandboxes.sweep(alive)
        finally:
            sandboxes.close()

    def left(self) -> dict[str, int]:
        """Everything that is still there."""
        api = self.engine.api
        wanted = {"label": self._label}
        workspaces = self._settings.workspaces_dir()
        backing = [entry.read_text() for entry in Path("/sys/block").glob("loop*/loop/backing_file")]
        return {
            "containers": len(api.containers(all=True, filters=wanted)),
            "volumes": len(api.volumes(filters=wanted)["Volumes"] or []),
            "networks": len(api.networks(filters=wanted)),
            "loop_devices": sum(str(workspaces) in file for file in backing),
            "workspace_files": len(list(workspaces.glob("*"))) if workspaces.is_dir() else 0,
            "processes": self._processes(),
        }

    def ownerless(self, alive: Collection[str]) -> list[str]:
        """Containers and volumes of its that nobody living has: what a sweep would remove now."""
        wanted = {"label": self._label}
        found = [*self.engine.api.containers(all=True, filters=wanted)]
        found += self.engine.api.volumes(filters=wanted)["Volumes"] or []
        owners = {str((each.get("Labels") or {}).get(LABEL_OWNER, "")) for each in found}
        return sorted(owners - set(alive))

    def _processes(self) -> int:
        """Processes of its sandboxes, and the shims that serve one.

        A shim behind which no container is, which an engine that was killed left, is containerd's and no sandbox's.
        """
        if self._exec_root is None:
            return sum(self._is_ours(process) for process in Path("/proc").glob("[0-9]*"))
        known = {each["Id"] for each in self.engine.api.containers(all=True)}
        return sum(1 + len(shim.processes()) for shim in shims.of_engine(self._exec_root) if shim.is_of(known))

    def _is_ours(self, process: Path) -> bool:
        """A process of one of its containers, or a shim that serves one."""
        try:
            command = (process / "cmdline").read_bytes().decode("utf-8", "replace").replace("\0", "/")
            words = ((process / "cgroup").read_text() + command).split("/")
        except OSError:
            return False
        return any(word in self._seen for word in words)

    def close(self) -> None:
        """Remove what is left, and let go of the engine."""
        if self._events is not None:
            self._events.close()
        self._watcher.join(5)
        self.sweep()
        self.engine.close()
