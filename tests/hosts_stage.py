"""An installation with several hosts: a worker process for each engine, and the services of the API process."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import engine_worker
from codesdk.bootstrap import Services
from codesdk.domain.decisions import PermissionMode
from codesdk.hosts import store as host_store
from codesdk.sandbox.docker.engine import Engine
from codesdk.sandbox.isolation import spec as specs
from codesdk.sandbox.records import store as sandbox_store
from codesdk.sessions import NewSession
from codesdk.settings import Settings, runfile
from codesdk.tenancy.principal import Role
from codesdk.toolcalls.records.call_record import Denied, Finished
from databases import PostgresDatabases
from stage import POLICY, read_whole, stored_call, wait_for

LEASE_S = 10.0
"""Long enough that a loaded machine's worker is not taken for a dead one."""
PATIENT_S = 90.0
DRAIN_S = 0.5
"""Of a worker that is told to end with a call under way: it is handed back soon."""


class Site:
    """What the API process opens, and a worker for each engine."""

    def __init__(self, root: Path, engines: dict[str, str], image: str, redis_url: str, database_url: str) -> None:
        (root / "policies").mkdir()
        (root / "policies" / "policy.yaml").write_text(POLICY)
        (root / "artifacts").mkdir()
        self._root = root
        self._image = image
        common = {
            "database_url": database_url,
            "redis_url": redis_url,
            "policies_dir": root / "policies",
            "poll_s": 0.1,
            "warm_pool": 0,
            "host_lease_s": LEASE_S,
            "snapshot_every_s": 0.1,
        }
        self.settings = {
            name: Settings(data_dir=self._directory(name), host_name=name, docker_host=engines.get(name, ""), **common)
            for name in ("api", *engines)
        }
        self.api = Services(self.settings["api"])
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        self.principal, _ = self.api.writer.run(
            lambda unit: self.api.directory.enroll(unit, "default", "dev", (Role.DEVELOPER,))
        )

    def _directory(self, name: str) -> Path:
        """A data directory of its own; the artifacts are everybody's, as on a file server."""
        directory = self._root / name
        directory.mkdir()
        (directory / "artifacts").symlink_to(self._root / "artifacts")
        return directory

    def start(self, name: str) -> None:
        settings = self.settings[name].model_copy(update={"host_labels": {"engine": name}})
        with (self._root / f"{name}.log").open("ab") as log:
            self.workers[name] = subprocess.Popen(
                [sys.executable, engine_worker.__file__, settings.model_dump_json(), self._image, str(DRAIN_S)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.wait(lambda: self._is_ready(name), f"worker {name}")

    def _is_ready(self, name: str) -> bool:
        ended = self.workers[name].poll()
        assert ended is None, self.log(name)
        said = runfile.read(self.settings[name].data_dir, "worker")
        return said is not None and said["pid"] == self.workers[name].pid

    def log(self, name: str) -> str:
        return (self._root / f"{name}.log").read_text(errors="replace")

    def wait(self, fact, what):
        return wait_for(fact, what, PATIENT_S)

    def open(self, engine: str | None = None, **wish):
        labels = {"engine": engine} if engine else {}
        wanted = NewSession(permission_mode=PermissionMode.AUTO, host_labels=labels, **wish)
        _, token = self.api.sessions.open(self.principal, wanted)
        return self.api.directory.subject(token)

    def submit(self, subject, line: str) -> str:
        return self.api.pipeline.submit("workspace.exec", {"command": line}, subject).identity.tool_call_id

    def ended(self, call: str):
        def end():
            at = stored_call(self.api.database, call)
            found = self.api.pipeline.find(at.tenant_id, at.subject.session_id, call)
            return found if isinstance(found, Finished | Denied) else None

        return self.wait(end, f"{call} to end")

    def says(self, subject, line: str) -> str:
        ended = self.ended(self.submit(subject, line))
        assert isinstance(ended, Finished), ended
        assert not ended.result.is_error, ended.result
        return ended.result.structured["stdout"]

    def session(self, subject):
        return self.api.sessions.find(subject.tenant_id, subject.session_id)

    def host(self, name: str):
        with self.api.database.read() as connection:
            return host_store.find(connection, name)

    def containers(self, name: str) -> list[str]:
        """Of that worker, on its engine."""
        label = f"codesdk.instance={self.settings[name].instance_id()}"
        with closing(Engine(self.settings[name].docker_host)) as engine:
            return [each["Id"] for each in engine.api.containers(all=True, filters={"label": label})]

    def up(self, name: str) -> None:
        """Start its worker, where none runs."""
        if name not in self.workers or self.workers[name].poll() is not None:
            self.start(name)

    def inside(self, name: str, subject, line: str) -> str:
        """What a command of ours says in the session's container on that engine: no worker has to do with it.

        It runs as the workspace's owner: the container's root may not write there.
        """
        with closing(Engine(self.settings[name].docker_host)) as engine:
            container = specs.container_name(self.settings[name].instance_id(), self._sandbox(subject))
            return self._said(engine, container, ["sh", "-c", line], self._owner(engine, container))

    def _sandbox(self, subject) -> str:
        with self.api.database.read() as connection:
            row = sandbox_store.of_session(connection, subject.session_id)
        return row.id

    def _owner(self, engine: Engine, container: str) -> str:
        return self._said(engine, container, ["stat", "-c", "%u:%g", "."], "root").strip()

    @staticmethod
    def _said(engine: Engine, container: str, argv: list[str], user: str) -> str:
        made = engine.api.exec_create(container, argv, user=user, workdir="/workspace")
        output = engine.api.exec_start(made["Id"]).decode()
        assert engine.api.exec_inspect(made["Id"])["ExitCode"] == 0, output
        return output

    def told_from_inside(self, name: str, subject) -> str:
        """What is written to the file `ran` of its workspace, until the container goes."""
        with closing(Engine(self.settings[name].docker_host)) as engine:
            container = specs.container_name(self.settings[name].instance_id(), self._sandbox(subject))
            user = self._owner(engine, container)
            watching = ["sh", "-c", "touch ran watched; exec tail -f -n +1 ran"]
            made = engine.api.exec_create(container, watching, user=user, workdir="/workspace", stderr=False)
            return engine.api.exec_start(made["Id"]).decode()

    def printed(self, subject) -> str:
        """The session's output as its log tells it, each stretch at its place."""
        text = ""
        for event in read_whole(self.api.log, subject.session_id):
            if event.type == "tool.output.delta":
                place, delta = event.payload["offset"], event.payload["delta"]
                assert place <= len(text), "nothing is left out"
                assert text[place : place + len(delta)] == delta[: len(text) - place], "what comes again is the same"
                text = text[:place] + delta + text[place + len(delta) :]
        return text

    def counted_to(self, subject) -> int:
        """The last number that the session's log tells of."""
        events = self.api.log.read(subject.session_id, max(0, self.api.log.head(subject.session_id) - 1))
        return max((int(event.payload["delta"].split()[-1]) for event in events if "delta" in event.payload), default=0)

    def runs(self, call: str) -> bool:
        stored = stored_call(self.api.database, call)
        return stored is not None and stored.state == "running_tool"

    def close(self) -> None:
        for name, worker in self.workers.items():
            if worker.poll() is None:
                worker.send_signal(signal.SIGCONT)
                worker.kill()
            worker.wait(30)
            self._remove_left(name)
        self.api.close()

    def _remove_left(self, name: str) -> None:
        label = f"codesdk.instance={self.settings[name].instance_id()}"
        with closing(Engine(self.settings[name].docker_host)) as engine:
            for container in engine.api.containers(all=True, filters={"label": label}):
                engine.api.remove_container(container["Id"], force=True, v=True)
            for volume in engine.api.volumes(filters={"label": label})["Volumes"] or []:
                engine.api.remove_volume(volume["Name"], force=True)


@contextmanager
def site_of(root: Path, engines: dict[str, str], image: str, redis_url: str, server: str) -> Iterator[Site]:
    """Hosts by the names and addresses of their engines, on a database of their own; no worker is started yet."""
    databases = PostgresDatabases(server)
    made = Site(root, engines, image, redis_url, databases.migrated())
    try:
        yield made
    finally:
        made.close()
        databases.close()
