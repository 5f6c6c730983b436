"""A whole worker over Redis and fake sandboxes: bootstrap's wiring, the RQ listener, the poll."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from codesdk.approvals import Verdict
from codesdk.bootstrap import Services
from codesdk.domain.calls import CallState
from codesdk.domain.invariants import first_violation
from codesdk.errors import ExitCode
from codesdk.hosts import store as host_store
from codesdk.jobs import QueueUnavailable
from codesdk.sandbox.fake.sandboxes import FakeSandboxes, Script
from codesdk.sessions import NewSession
from codesdk.settings import Settings, runfile
from codesdk.tenancy.principal import Role
from codesdk.toolcalls.records.call_record import Denied, Finished
from codesdk.worker.calls.listener import Listener
from codesdk.worker.lifecycle.worker import Worker
from codesdk.worker.ownership.registration import WorkerRunning
from databases import ON_BOTH, ONLY_POSTGRESQL
from stage import POLICY, stored_call, wait_for

RISKY = '  - {id: risky, effect: ask, tool: workspace.exec, args: {/command: {glob: "risky*"}}}\n'
IMAGES = {"base": "sha256:" + "0" * 64}


class Site:
    """An installation: what the API process opens, and workers over the same sandboxes."""

    def __init__(self, redis_url, root, database_url=""):
        (root / "policies").mkdir()
        (root / "policies" / "policy.yaml").write_text(POLICY + RISKY)
        self.settings = Settings(
            data_dir=root / "data",
            database_url=database_url,
            redis_url=redis_url,
            policies_dir=root / "policies",
            poll_s=0.1,
            worker_threads=4,
            warm_pool=0,
        )
        self.hold = threading.Event()
        self.sandboxes = FakeSandboxes(self.choose)
        self.api = Services(self.settings)
        self._workers = []

    def choose(self, request):
        line = request.argv[-1]
        return Script(stdout=b"held", hold=self.hold) if line == "hold" else Script(stdout=line.encode())

    def worker(self, *, listen=True):
        services = Services(self.settings)
        try:
            worker = Worker(services, self.sandboxes, IMAGES)
        except WorkerRunning:
            services.close()
            raise
        worker.start()
        listener = (
            Listener(self.settings.resolved_redis_url(), worker.host.id, worker.dispatcher.wake) if listen else None
        )
        stopped = []

        def stop():
            if not stopped:
                stopped.append(True)
                if listener is not None:
                    listener.close()
                worker.stop()
                services.close()

        self._workers.append(stop)
        return worker, stop

    def subject(self):
        principal, _ = self.api.writer.run(
            lambda unit: self.api.directory.enroll(unit, "default", f"dev{time.monotonic_ns()}", (Role.DEVELOPER,))
        )
        _, token = self.api.sessions.open(principal, NewSession())
        return self.api.directory.subject(token)

    def submit(self, subject, line="x"):
        return self.api.pipeline.submit("workspace.exec", {"command": line}, subject).identity.tool_call_id

    def risky(self):
        """A call that waits for a person, and its approval."""
        subject = self.subject()
        waiting = self.api.pipeline.submit("workspace.exec", {"command": "risky"}, subject)
        return waiting.identity.tool_call_id, self.api.approvals.find(subject.tenant_id, waiting.approval_id)

    def approver(self):
        name = f"ann{time.monotonic_ns()}"
        enroll = self.api.directory.enroll
        return self.api.writer.run(lambda unit: enroll(unit, "default", name, (Role.APPROVER,)))[0]

    def vote(self, asked, by):
        return self.api.pipeline.vote(
            asked.tenant_id, asked.id, Verdict.APPROVE, digest=asked.digest, by=by.id, comment=None
        )

    def given(self):
        """Its settings, for another process."""
        return self.settings.model_dump_json(
            include={"data_dir", "database_url", "redis_url", "policies_dir", "poll_s", "host_lease_s"}
        )

    def ended(self, call, deadline_s=15.0):
        def end():
            at = stored_call(self.api.database, call)
            found = self.api.pipeline.find(at.tenant_id, at.subject.session_id, call)
            return found if isinstance(found, Finished | Denied) else None

        return wait_for(end, f"{call} to end", deadline_s)

    def close(self):
        self.hold.set()
        for stop in self._workers:
            stop()
        self.api.close()


@pytest.fixture
def site(redis_url, tmp_path, databases, database_kind):
    made = Site(redis_url, tmp_path, "" if database_kind == "sqlite" else databases.migrated())
    yield made
    made.close()


@ON_BOTH
def test_a_call_goes_through_two_processes_worth_of_services(site):
    site.worker()
    subject = site.subject()
    call = site.submit(subject, "hello")
    assert site.ended(call).result.structured["stdout"] == "hello"
    types = [event.type.value for event in site.api.log.read(subject.session_id)]
    # The sandbox may be ready before or after the call was requested.
    assert [t for t in types if t.startswith("tool.")] == [
        "tool.call.requested",
        "tool.call.policy_evaluated",
        "tool.call.approved",
        "tool.call.started",
        "tool.output.delta",
        "tool.output.completed",
        "tool.call.completed",
    ]


def test_the_apis_reader_follows_the_workers_events(site):
    site.worker()
    subject, seen = site.subject(), []
    site.api.tail.subscribe(subject.session_id, 0, seen.extend)
    site.ended(site.submit(subject))
    wait_for(lambda: seen and seen[-1].type == "tool.call.completed", "the last event")
    assert [event.seq for event in seen] == list(range(1, len(seen) + 1))


def test_without_a_listener_the_poll_serves(site):
    site.worker(listen=False)
    assert not site.ended(site.submit(site.subject())).result.is_error


def test_an_installation_has_one_worker_per_engine(site):
    site.worker()
    services = Services(site.settings)
    with pytest.raises(WorkerRunning):
        Worker(services, site.sandboxes, IMAGES)
    services.close()


def test_a_worker_without_its_queue_does_not_start_and_holds_nothing(site, tmp_path):
    settings = site.settings.model_copy(update={"redis_url": f"unix://{tmp_path}/none.sock"})
    services = Services(settings)
    with pytest.raises(QueueUnavailable):
        Worker(services, site.sandboxes, IMAGES)
    services.close()
    site.worker()


@ON_BOTH
def test_calls_of_many_sessions_all_end_and_run_once(site):
    site.worker()
    calls = [site.submit(site.subject(), f"line{number}") for number in range(20)]
    outcomes = [site.ended(call) for call in calls]
    assert [outcome.result.structured["stdout"] for outcome in outcomes] == [f"line{number}" for number in range(20)]
    assert len(site.sandboxes.runs) == 20


@ON_BOTH
def test_a_new_worker_takes_up_what_a_stopped_one_left_running(site, monkeypatch):
    monkeypatch.setattr("codesdk.worker.lifecycle.worker.DRAIN_S", 0.1)
    _, stop = site.worker()
    subject = site.subject()
    call = site.submit(subject, "hold")
    wait_for(lambda: site.sandboxes.runs, "the command")
    stop()
    assert stored_call(site.api.database, call).state is CallState.RUNNING
    joining = threading.Thread(target=site.worker)
    joining.start()
    wait_for(lambda: (s := stored_call(site.api.database, call)) and s.state is CallState.RUNNING, "the adoption")
    site.hold.set()
    joining.join(15)
    assert site.ended(call).result.structured["stdout"] == "held"
    assert len(site.sandboxes.runs) == 1


@contextmanager
def serving(site, drain_s):
    """A worker process with a command that never ends, and that call."""
    argv = [sys.executable, str(Path(__file__).with_name("leaving.py")), site.given(), str(drain_s)]
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    try:
        wait_for(lambda: runfile.read(site.settings.data_dir, "worker"), "the worker", 60.0)
        subject = site.subject()
        call = site.submit(subject, "hold")
        assert process.stdout.readline() == b"running\n"
        yield process, subject, call
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@ON_BOTH
def test_a_worker_that_is_told_to_end_takes_no_call_hands_back_what_runs_and_leaves(site):
    with serving(site, 0.5) as (process, subject, call):
        process.terminate()
        wait_for(lambda: not runfile.read(site.settings.data_dir, "worker"), "the worker to stop serving", 60.0)
        late = site.submit(site.subject(), "late")
        assert process.wait(60) == 0
        assert process.stdout.read() == b""  # it began nothing more
    states = [stored_call(site.api.database, each).state for each in (call, late)]
    assert states == [CallState.RUNNING, CallState.QUEUED]
    site.worker()  # over sandboxes of its own: what ran is lost with those of the process
    assert site.ended(call).result.code == "WORKER_LOST"
    assert site.ended(late).result.structured["stdout"] == "late"
    assert first_violation(site.api.log.read(subject.session_id)) is None


def test_a_second_signal_ends_a_worker_at_once(site):
    with serving(site, 600.0) as (process, _subject, call):
        process.terminate()
        wait_for(lambda: not runfile.read(site.settings.data_dir, "worker"), "the worker to stop serving", 60.0)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 128 + signal.SIGINT
    assert stored_call(site.api.database, call).state is CallState.RUNNING


@ON_BOTH
def test_a_worker_that_hangs_is_ended_by_the_next_one_which_goes_on_and_one_that_beats_is_not(site):
    site.settings = site.settings.model_copy(update={"host_lease_s": 4.0})
    with serving(site, 0.5) as (process, subject, call):
        with pytest.raises(WorkerRunning):
            site.worker()
        process.send_signal(signal.SIGSTOP)

        def follow():
            with suppress(WorkerRunning):  # until it was silent for its lease, as whoever starts it again tries
                return site.worker()

        wait_for(follow, "a worker to follow the one that hangs", 60.0)
        assert process.wait(60) == -signal.SIGKILL
    assert site.ended(call).result.code == "WORKER_LOST"  # its sandboxes were the process's own
    assert site.ended(site.submit(site.subject(), "after")).result.structured["stdout"] == "after"
    assert first_violation(site.api.log.read(subject.session_id)) is None


@ON_BOTH
def test_a_host_that_is_served_from_another_data_directory_keeps_the_second_from_serving(site, tmp_path):
    site.worker()
    elsewhere = site.settings.model_copy(
        update={"data_dir": tmp_path / "second", "database_url": site.settings.resolved_database_url()}
    )
    services = Services(elsewhere)
    with closing(services), pytest.raises(WorkerRunning, match="another data directory"):
        Worker(services, site.sandboxes, IMAGES)
    assert not site.ended(site.submit(site.subject())).result.is_error


def test_a_worker_whose_part_hangs_ends_by_itself_and_says_where_it_stood(site):
    argv = [sys.executable, str(Path(__file__).with_name("hanging.py")), site.given()]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == ExitCode.UNAVAILABLE
    assert "in hang" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("error: WORKER_HANGS: the poller")
    site.worker()
    assert not site.ended(site.submit(site.subject())).result.is_error


@ONLY_POSTGRESQL
def test_a_heartbeat_does_not_stand_behind_what_else_the_worker_writes(site):
    """Which may wait for a lock that an operator's statement holds for longer than a lease."""
    worker, _ = site.worker(listen=False)
    entered, hold = threading.Event(), threading.Event()

    def stuck(_unit):
        entered.set()
        assert hold.wait(60.0)

    with ThreadPoolExecutor(2) as pool:
        held = pool.submit(worker.sandbox_registry._writer.run, stuck)
        try:
            assert entered.wait(30.0)
            pool.submit(worker.heartbeat._beat).result(30.0)
        finally:
            hold.set()
        held.result(30.0)


def test_a_closed_session_leaves_no_sandbox(site):
    site.worker()
    subject = site.subject()
    site.ended(site.submit(subject))
    site.api.sessions.close(subject.tenant_id, subject.session_id)
    wait_for(lambda: site.sandboxes.living == (), "the sandbox to go")
    wait_for(lambda: site.api.log.read(subject.session_id)[-1].type == "sandbox.stopped", "the log to say so")


@ON_BOTH
def test_a_call_whose_worker_was_killed_ends_once_as_lost_and_the_next_worker_goes_on(site):
    program = Path(__file__).with_name("holding.py")
    dying = subprocess.Popen([sys.executable, str(program), site.given()], stdout=subprocess.PIPE)
    try:
        assert dying.stdout.readline() == b"ready\n"
        subject = site.subject()
        running = site.submit(subject, "hold")
        assert dying.stdout.readline() == b"running\n"
        waiting = site.submit(subject, "after")
        assert stored_call(site.api.database, running).state is CallState.RUNNING
    finally:
        dying.kill()
        dying.wait()
        dying.stdout.close()
    site.worker()
    lost = site.ended(running).result
    assert (lost.is_error, lost.code) == (True, "WORKER_LOST")
    assert site.ended(waiting).identity.tool_call_id == waiting
    events = site.api.log.read(subject.session_id)
    ends = [event for event in events if event.type == "tool.call.completed"]
    assert sorted(event.payload["tool_call_id"] for event in ends) == sorted([running, waiting])
    assert first_violation(events) is None


@ON_BOTH
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_vote_whose_process_is_killed_at_its_commit_is_whole_or_not_there_and_counts_once_when_repeated(site, moment):
    _, stop = site.worker()
    call, asked = site.risky()
    stop()
    ann, program = site.approver(), Path(__file__).with_name("voting.py")
    told = [site.given(), asked.tenant_id, asked.id, asked.digest, ann.id, moment]
    died = subprocess.run([sys.executable, str(program), *told], check=False, timeout=60)
    assert died.returncode == -signal.SIGKILL
    left = site.api.approvals.find(asked.tenant_id, asked.id)
    whole = moment == "after"
    assert (left.state, len(left.votes)) == (("approved", 1) if whole else ("pending", 0))
    assert stored_call(site.api.database, call).state is (CallState.QUEUED if whole else CallState.WAITING)
    assert [vote.by for vote in site.vote(asked, ann).votes] == [ann.id]
    site.worker()
    assert site.ended(call).result.structured["stdout"] == "risky"
    assert len(site.sandboxes.runs) == 1
    events = site.api.log.read(asked.session_id)
    said = [event for event in events if event.payload.get("source") == "user"]
    assert (len(said), first_violation(events)) == (1, None)


@ON_BOTH
@pytest.mark.parametrize("moment", ["consumed", "claimed"])
def test_a_call_whose_worker_is_killed_between_the_use_of_its_approval_and_its_run_runs_once(site, moment):
    _, stop = site.worker()
    call, asked = site.risky()
    wait_for(lambda: any(e.type == "sandbox.started" for e in site.api.log.read(asked.session_id)), "the sandbox")
    stop()
    program = Path(__file__).with_name("holding.py")
    dying = subprocess.Popen([sys.executable, str(program), site.given(), moment], stdout=subprocess.PIPE)
    try:
        assert dying.stdout.readline() == b"ready\n"
        site.vote(asked, site.approver())
        assert dying.stdout.readline() == f"{moment}\n".encode()
    finally:
        dying.kill()
        dying.wait()
    with dying.stdout as rest:
        assert rest.read() == b""  # it ran nothing
    left = site.api.approvals.find(asked.tenant_id, asked.id).state
    assert left == ("consumed" if moment == "claimed" else "approved")
    site.worker()
    result = site.ended(call).result
    # What was claimed is the next worker's to take up: the sandbox knows by its attempt that it never began.
    assert (result.structured["stdout"], len(site.sandboxes.runs)) == ("risky", 1)
    assert site.api.approvals.find(asked.tenant_id, asked.id).state == "consumed"
    events = site.api.log.read(asked.session_id)
    assert [event.type.value for event in events].count("tool.call.approved") == 1
    assert first_violation(events) is None


@ON_BOTH
def test_closing_a_session_ends_its_running_call(site):
    site.worker()
    subject = site.subject()
    call = site.submit(subject, "hold")
    wait_for(lambda: site.sandboxes.runs, "the command")
    site.api.sessions.close(subject.tenant_id, subject.session_id)
    assert site.ended(call).result.is_error


def test_a_run_file_tells_of_a_living_process_only(site):
    path = runfile.write(site.settings.data_dir, "worker", {"pid": os.getpid()})
    assert runfile.read(site.settings.data_dir, "worker") == {"pid": os.getpid()}
    path.unlink()
    assert runfile.read(site.settings.data_dir, "worker") is None


def test_a_worker_keeps_a_pool_gives_from_it_and_drains_it_when_it_stops(site):
    site.settings = site.settings.model_copy(update={"warm_pool": 1})
    worker, stop = site.worker()

    def pooled():
        with worker.sandbox_registry._database.read() as connection:
            return connection.exec_driver_sql("SELECT id FROM sandboxes WHERE state = 'pooled'").scalar()

    first = wait_for(pooled, "a pooled sandbox")
    subject = site.subject()
    assert not site.ended(site.submit(subject)).result.is_error
    assert worker.sandbox_registry.live(subject.session_id).owner == first
    second = wait_for(pooled, "another one")
    assert second != first
    stop()
    assert site.sandboxes.living == (first,)


def test_a_file_that_was_rewritten_while_its_approval_was_pending_voids_it(site):
    site.worker()
    subject = site.subject()
    submitted = site.api.pipeline.submit("workspace.write", {"path": "a.txt", "content": "x"}, subject)
    approvals = lambda: site.api.approvals.listing(subject.tenant_id, None, subject.session_id)  # noqa: E731
    (approval,) = wait_for(approvals, "the question to be put")
    assert approval.id == submitted.approval_id
    (sandbox,) = (state.files for state in site.sandboxes._states.values())
    sandbox.put("a.txt", b"made meanwhile")
    by, _ = site.api.writer.run(
        lambda unit: site.api.directory.enroll(unit, "default", f"ann{time.monotonic_ns()}", (Role.APPROVER,))
    )
    site.api.pipeline.vote(
        subject.tenant_id, approval.id, Verdict.APPROVE, digest=approval.digest, by=by.id, comment=None
    )
    ended = site.ended(submitted.identity.tool_call_id)
    assert (ended.result.is_error, ended.result.code) == (True, "FILES_CHANGED")
    assert sandbox.read("a.txt").data == b"made meanwhile"
    assert first_violation(site.api.log.read(subject.session_id, 0)) is None


@ON_BOTH
def test_a_worker_that_stops_in_order_leaves_its_host_away_and_the_next_one_serves_what_waits(site):
    _, stop = site.worker()
    before = site.subject()
    stop()
    with site.api.database.read() as connection:
        assert [host.away for host in host_store.list_all(connection)] == [True]
    meanwhile = site.subject()
    calls = [site.submit(subject) for subject in (before, meanwhile)]
    site.worker()
    assert not any(site.ended(call).result.is_error for call in calls)


@ON_BOTH
def test_a_worker_whose_host_was_given_up_hears_of_it_and_serves_nothing_more(site):
    site.settings = site.settings.model_copy(update={"host_lease_s": 1.0})
    worker, _ = site.worker()
    told = threading.Event()
    worker.heartbeat.on_fenced(told.set)
    subject = site.subject()
    site.ended(site.submit(subject))
    with site.api.database.read() as connection:
        (host,) = host_store.list_all(connection)
    site.api.writer.run(lambda unit: host_store.mark_lost(unit.connection, host.id, generation=host.generation))
    assert site.api.lost_hosts.tend() in (0, 1)  # the worker itself may have been the one that ended it
    wait_for(
        lambda: site.api.sessions.find(subject.tenant_id, subject.session_id).state == "closed", "its session's end"
    )
    assert told.wait(30)
    assert site.api.lost_hosts.tend() == 0
