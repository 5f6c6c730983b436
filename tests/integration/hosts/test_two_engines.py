"""Two engines of one machine, a worker process each: placed, killed, followed, lost, opened again elsewhere, drained, frozen.

One stage for all of it, in the order of the file: engines are slow.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

import engine_worker
from codesdk.bootstrap import open_services
from codesdk.domain.decisions import PermissionMode
from codesdk.domain.invariants import check
from codesdk.hosts import HostState
from codesdk.hosts import store as host_store
from codesdk.sandbox import spec as specs
from codesdk.sandbox import store as sandbox_store
from codesdk.sandbox.engine import Engine
from codesdk.sessions import NewSession, NoHost
from codesdk.settings import Settings, runfile
from codesdk.tenancy.principal import Role
from codesdk.toolcalls.stored import Denied, Finished
from databases import PostgresDatabases
from stage import POLICY, read_whole, stored_call, wait_for

LEASE_S = 10.0
"""Long enough that a loaded machine's worker is not taken for a dead one."""
PATIENT_S = 90.0
DRAIN_S = 0.5
"""Of a worker that is told to end with a call under way: it is handed back soon."""
PRINTS = """\
echo run >> ran; i=0
more() { until=$((i + 1000)); while [ $i -lt $until ]; do i=$((i + 1)); echo $i; done; }
for gate in 1 2 3; do more; while [ ! -e go$gate ]; do i=$((i + 1)); echo $i; sleep 0.2; done; done; more
"""
"""Counts up to some thousands, and goes on at each gate when the test opens it; in between it prints now and then."""


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
        self.api = open_services(self.settings["api"])
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
            container = specs.name_of(self.settings[name].instance_id(), self._sandbox(subject))
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
            container = specs.name_of(self.settings[name].instance_id(), self._sandbox(subject))
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


@pytest.fixture(scope="module")
def engines(engine, gvisor_engine):
    return {"one": engine.host, "two": gvisor_engine.host}


@pytest.fixture(scope="module")
def site(tmp_path_factory, engines, sandbox_image, redis_url, postgres_server):
    databases = PostgresDatabases(postgres_server)
    root = tmp_path_factory.mktemp("two-engines")
    made = Site(root, engines, sandbox_image, redis_url, databases.migrated())
    try:
        yield made
    finally:
        made.close()
        databases.close()


@pytest.mark.timeout(600)
def test_two_engines_share_the_sessions_and_one_of_them_can_die(site, record_property):
    for name in ("one", "two"):
        site.start(name)
    assert len({site.host(name).engine for name in ("one", "two")}) == 2

    # Placed by labels where they are asked for, and else where there are fewer.
    doomed = site.open("two", snapshots=True)
    steady = site.open()
    assert site.session(doomed).host_id == site.host("two").id
    assert site.session(steady).host_id == site.host("one").id
    assert site.says(steady, "echo one") == "one\n"
    assert site.says(doomed, "echo kept > file; cat file") == "kept\n"
    site.wait(lambda: site.session(doomed).snapshot_artifact, "a snapshot")

    # A worker dies as the kernel kills it, with a call under way and nobody who comes back.
    running = site.submit(doomed, "sleep 600")
    site.wait(lambda: site.runs(running), "the call to run")
    site.workers["two"].kill()
    site.workers["two"].wait(PATIENT_S)
    killed_at = time.monotonic()
    queued = site.submit(doomed, "echo never")

    def tend():
        site.api.lost_hosts.tend()
        return site.session(doomed).state == "closed"

    site.wait(tend, "the lost host's session to end")
    seconds = time.monotonic() - killed_at
    record_property("seconds_to_lost", round(seconds, 1))
    assert seconds < LEASE_S + 30
    assert site.session(doomed).closed_reason == "host lost"
    assert site.ended(running).result.code == "WORKER_LOST"
    assert site.ended(queued).code == "SESSION_CLOSED"
    lost = site.host("two")
    assert (lost.state, lost.sessions, lost.reserved.memory_bytes) == (HostState.LOST, 0, 0)
    with pytest.raises(NoHost):
        site.open("two")
    assert site.says(steady, "echo still") == "still\n"

    # Its files go on on the other engine.
    again = site.open(from_session=doomed.session_id)
    assert site.session(again).host_id == site.host("one").id
    assert site.says(again, "cat file") == "kept\n"

    # When it comes back, what was left there is gone before it serves, and it is a host like any other.
    assert len(site.containers("two")) == 1
    site.start("two")
    site.wait(lambda: site.containers("two") == [], "the leftovers to be swept")
    assert site.host("two").state is HostState.ACTIVE
    back = site.open("two")
    assert site.says(back, "ls") == ""


@pytest.mark.timeout(600)
def test_a_worker_that_was_frozen_while_its_host_was_given_up_starts_nothing_and_ends(site):
    frozen = site.open("two")
    assert site.says(frozen, "true") == ""
    site.workers["two"].send_signal(signal.SIGSTOP)
    call = site.submit(frozen, "touch ran")
    found = site.host("two")
    assert site.api.writer.run(lambda unit: host_store.lose(unit.connection, found.id, generation=found.generation))
    site.wait(lambda: site.api.lost_hosts.tend() or site.session(frozen).state == "closed", "its session to end")
    before = [event.type for event in site.api.log.read(frozen.session_id)]
    site.workers["two"].send_signal(signal.SIGCONT)
    assert site.workers["two"].wait(PATIENT_S) != 0
    assert "HOST_GONE" in site.log("two")
    assert site.ended(call).code == "SESSION_CLOSED"
    assert [event.type for event in site.api.log.read(frozen.session_id)] == before
    site.start("two")
    site.wait(lambda: site.containers("two") == [], "the leftovers to be swept")


@pytest.mark.timeout(600)
def test_a_draining_host_takes_no_session_and_finishes_its_own(site):
    there = site.open("two")
    assert site.says(there, "echo before") == "before\n"
    assert site.api.writer.run(
        lambda unit: host_store.set_state(unit.connection, site.host("two").id, HostState.ACTIVE, HostState.DRAINING)
    )
    with pytest.raises(NoHost) as refused:
        site.open("two")
    assert refused.value.details == {"missing": {"draining": 1, "labels": 1}}
    assert site.says(there, "echo after") == "after\n"
    site.api.sessions.close(there.tenant_id, there.session_id)
    site.wait(lambda: site.host("two").sessions == 0, "its last session to be gone")
    # Stopped in order it is away: not lost, whatever the time.
    site.workers["two"].terminate()
    assert site.workers["two"].wait(PATIENT_S) == 0
    assert (site.host("two").state, site.host("two").away) == (HostState.DRAINING, True)


@pytest.mark.timeout(600)
def test_a_call_that_prints_ends_well_and_whole_when_one_worker_hands_it_back_and_the_next_is_killed(site):
    site.up("one")
    subject = site.open("one")
    call = site.submit(subject, PRINTS)
    site.wait(lambda: site.counted_to(subject) >= 1000, "the first lines")

    site.workers["one"].terminate()
    assert site.workers["one"].wait(PATIENT_S) == 0
    assert site.runs(call)
    site.inside("one", subject, "touch go1")  # a thousand lines while there is no worker
    site.start("one")
    site.wait(lambda: site.counted_to(subject) >= 2000, "the lines of meanwhile")

    site.workers["one"].kill()
    site.workers["one"].wait(PATIENT_S)
    site.inside("one", subject, "touch go2")
    site.start("one")
    site.wait(lambda: site.counted_to(subject) >= 3000, "the lines of after the kill")
    site.inside("one", subject, "touch go3")

    ended = site.ended(call)
    assert (ended.identity.attempt, ended.result.is_error) == (1, False)
    told = ended.result.structured["stdout"]
    numbers = told.splitlines()
    assert len(numbers) > 4000
    assert numbers == [str(number) for number in range(1, len(numbers) + 1)]
    assert site.printed(subject) == told
    assert site.inside("one", subject, "cat ran") == "run\n"
    assert check(read_whole(site.api.log, subject.session_id)) is None


@pytest.mark.timeout(600)
def test_a_worker_that_hangs_is_ended_by_the_next_one_which_has_the_whole_result_of_its_call(site):
    site.up("one")  # the only host that is heard now: nobody gives it up meanwhile
    there = site.open("one")
    assert site.says(there, "true") == ""
    call = site.submit(there, "echo begun; sleep 15; echo ended; echo x >> runs")
    site.wait(lambda: site.runs(call), "the call to run")
    frozen = site.workers["one"]
    frozen.send_signal(signal.SIGSTOP)
    site.wait(lambda: (site.host("one").silent_s or 0) > LEASE_S, "its silence")
    site.start("one")
    assert frozen.wait(PATIENT_S) == -signal.SIGKILL
    ended = site.ended(call)
    assert (ended.result.is_error, ended.result.structured["stdout"]) == (False, "begun\nended\n")
    assert site.says(there, "cat runs") == "x\n"


@pytest.mark.timeout(600)
def test_a_worker_frozen_with_a_call_in_hand_and_one_about_to_start_changes_nothing_when_its_host_was_given_up(site):
    site.up("one")
    held, begun = site.open("one"), site.open("one")
    assert site.says(begun, "true") == ""
    in_hand = site.submit(held, "echo run >> ran; while [ ! -e go ]; do sleep 0.1; done; echo done")
    site.wait(lambda: site.runs(in_hand), "the call to run")
    site.wait(lambda: site.inside("one", held, "cat ran 2>/dev/null || true"), "its command to run")
    about_to = site.submit(begun, "echo run >> ran")
    site.workers["one"].send_signal(signal.SIGSTOP)
    waiting = site.submit(begun, "echo run >> ran")

    found = site.host("one")
    assert site.api.writer.run(lambda unit: host_store.lose(unit.connection, found.id, generation=found.generation))
    for subject in (held, begun):
        site.wait(
            lambda s=subject: site.api.lost_hosts.tend() or site.session(s).state == "closed", "its session to end"
        )
    assert site.ended(in_hand).result.code == "WORKER_LOST"
    before = [read_whole(site.api.log, subject.session_id) for subject in (held, begun)]
    ends = [site.ended(call) for call in (in_hand, about_to, waiting)]

    # The thawed one may remove its containers before it ends: what runs in them is told as long as they are there.
    with ThreadPoolExecutor(2) as pool:
        telling = [pool.submit(site.told_from_inside, "one", subject) for subject in (held, begun)]
        site.wait(lambda: all("watched" in site.inside("one", s, "ls") for s in (held, begun)), "both to be watched")
        ran_begun = site.inside("one", begun, "cat ran").count("run")
        site.inside("one", held, "touch go")  # its command ends: there is a result to write
        site.workers["one"].send_signal(signal.SIGCONT)
        assert site.workers["one"].wait(PATIENT_S) != 0
        assert [read_whole(site.api.log, subject.session_id) for subject in (held, begun)] == before
        assert [site.ended(call) for call in (in_hand, about_to, waiting)] == ends
        site.start("one")
        site.wait(lambda: site.containers("one") == [], "the leftovers to be swept")
        assert [said.result(PATIENT_S).count("run") for said in telling] == [1, ran_begun]
