"""Dry runs in copies of real workspaces: no network, no secrets, bounded, and no leftovers after any crash."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from codesdk.approvals import ApprovalState, Verdict
from codesdk.bootstrap import Services
from codesdk.sandbox.docker.driver import DockerSandboxes
from codesdk.sandbox.docker.engine import Engine
from codesdk.sandbox.port import FileRefused, FileWrite
from codesdk.sessions import NewSession
from codesdk.settings import Settings
from codesdk.tenancy.principal import Role
from codesdk.toolcalls.records.call_record import Denied, Finished
from codesdk.worker.lifecycle.worker import Worker
from sandboxes import run
from stage import stored_call, wait_for

pytestmark = [pytest.mark.engine, pytest.mark.redis]
POLICY = """\
version: 1
name: previews
default: deny
enable: [workspace.exec]
rules:
  - id: changes
    effect: ask
    tool: [workspace.exec, workspace.write, workspace.edit, workspace.delete, workspace.move, patch.apply]
    approval: {timeout: 10m, preview: true}
"""
LONG_S = 60.0


class Site:
    """An installation over a real engine; the test is its API, and its worker where it starts one."""

    def __init__(self, redis_url, engine, image, root):
        (root / "policies").mkdir()
        (root / "policies" / "policy.yaml").write_text(POLICY)
        self.settings = Settings(
            data_dir=root / "data",
            redis_url=redis_url,
            policies_dir=root / "policies",
            poll_s=0.1,
            worker_threads=2,
            warm_pool=0,
        )
        self.image = image
        self.host = engine.host
        self.services = Services(self.settings)
        self.engine = Engine(engine.host)
        self.sandboxes = DockerSandboxes(self.settings.instance_id(), self.engine)
        self.developer, _ = self.enroll(Role.DEVELOPER)
        self.approver, _ = self.enroll(Role.APPROVER)
        self._ends = []
        self.worker = None

    def enroll(self, role):
        directory = self.services.directory
        return self.services.writer.run(lambda unit: directory.enroll(unit, "default", role.value, (role,)))

    def start(self):
        services = Services(self.settings)
        self.worker = Worker(services, self.sandboxes, {"base": self.image})
        self.worker.start()
        self._ends.append(lambda w=self.worker: (w.stop(), services.close()))

    def stop(self):
        while self._ends:
            self._ends.pop()()
        self.worker = None

    def session(self):
        _, token = self.services.sessions.open(self.developer, NewSession())
        return self.services.directory.subject(token)

    def room(self, subject):
        return self.worker.sandbox_registry.ready(subject.session_id)

    def submit(self, subject, name, **given):
        return self.services.pipeline.submit(name, given, subject).identity.tool_call_id

    def asked(self, call):
        """Its approval, once people are asked."""
        at = stored_call(self.services.database, call)

        def look():
            found = self.services.approvals.listing(at.tenant_id, ApprovalState.PENDING, at.subject.session_id)
            return next((each for each in found if each.tool_call_id == call), None)

        return wait_for(look, "the question", LONG_S)

    def approve(self, asked):
        vote = self.services.pipeline.vote
        vote(asked.tenant_id, asked.id, Verdict.APPROVE, digest=asked.digest, by=self.approver.id, comment=None)

    def ended(self, call):
        at = stored_call(self.services.database, call)

        def look():
            found = self.services.pipeline.find(at.tenant_id, at.subject.session_id, call)
            return found if isinstance(found, Finished | Denied) else None

        return wait_for(look, f"{call} to end", LONG_S)

    def run(self, call):
        self.approve(self.asked(call))
        return self.ended(call).result

    def owners(self, where="session_id IS NOT NULL"):
        with self.services.database.read() as connection:
            return list(connection.exec_driver_sql(f"SELECT id FROM sandboxes WHERE {where}").scalars())

    def copies(self):
        return self.owners("session_id IS NULL")

    def close(self):
        self.stop()
        self.sandboxes.sweep(())
        self.sandboxes.close()
        self.services.close()


@pytest.fixture(scope="module")
def site(redis_url, engine, sandbox_image, tmp_path_factory):
    made = Site(redis_url, engine, sandbox_image, tmp_path_factory.mktemp("site"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def served(site):
    """With a worker in this process, and a session with some files."""
    site.start()
    subject = site.session()
    files = (
        FileWrite(path="a.txt", content=b"one\ntwo\n"),
        FileWrite(path="d/b.txt", content=b"b\n"),
        FileWrite(path="tool.sh", content=b"echo hi > made.txt; echo out; echo err >&2; exit 3\n", mode=0o755),
    )
    assert not isinstance(site.room(subject).files.write(files), FileRefused)
    yield subject
    site.stop()


def test_a_patch_is_shown_and_then_made_as_it_was_shown(site, served):
    patch = "--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n-one\n+ONE\n two\n--- /dev/null\n+++ b/new.txt\n@@ -0,0 +1 @@\n+new\n"
    asked = site.asked(call := site.submit(served, "patch.apply", patch=patch))
    shown = asked.shown["preview"]
    assert shown["diff"] == (
        "--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n-one\n+ONE\n two\n--- /dev/null\n+++ b/new.txt\n@@ -0,0 +1,1 @@\n+new\n"
    )
    files = site.room(served).files
    assert files.read("a.txt").data == b"one\ntwo\n"
    site.approve(asked)
    assert site.ended(call).result.differs == ()
    assert (files.read("a.txt").data, files.read("new.txt").data) == (b"ONE\ntwo\n", b"new\n")


def test_an_edit_is_shown_as_a_diff_and_made_only_on_the_file_that_was_shown(site, served):
    files = site.room(served).files
    files.write((FileWrite(path="edit.txt", content=b"one\ntwo\n"),))
    given = {"path": "edit.txt", "old_text": "two", "new_text": "2"}
    asked = site.asked(call := site.submit(served, "workspace.edit", **given))
    assert asked.shown["preview"]["diff"] == "--- a/edit.txt\n+++ b/edit.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n"
    files.write((FileWrite(path="edit.txt", content=b"two\nthree\n"),))
    site.approve(asked)
    assert site.ended(call).result.code == "FILES_CHANGED"
    assert files.read("edit.txt").data == b"two\nthree\n"
    assert site.run(site.submit(served, "workspace.edit", **given)).differs == ()
    assert files.read("edit.txt").data == b"2\nthree\n"


def test_a_delete_of_a_directory_into_which_something_came_is_void(site, served):
    asked = site.asked(call := site.submit(served, "workspace.delete", path="d", recursive=True))
    assert [file["path"] for file in asked.shown["preview"]["files"]] == ["d", "d/b.txt"]
    files = site.room(served).files
    files.write((FileWrite(path="d/precious.txt", content=b"kept\n"),))
    site.approve(asked)
    result = site.ended(call).result
    assert (result.is_error, result.code) == (True, "FILES_CHANGED")
    assert files.read("d/precious.txt").data == b"kept\n"


def test_a_command_is_shown_with_all_that_it_did_and_the_same_is_not_remarked_on(site, served):
    asked = site.asked(call := site.submit(served, "workspace.exec", command="bash tool.sh"))
    shown = asked.shown["preview"]
    assert (shown["exit_code"], shown["stdout"], shown["stderr"]) == (3, "out\n", "err\n")
    assert shown["files"] == [{"path": "made.txt", "change": "added", "what": "file, 3 bytes, mode 0644"}]
    assert isinstance(site.room(served).files.stat("made.txt"), FileRefused)
    site.approve(asked)
    result = site.ended(call).result
    assert (result.structured["exit_code"], result.differs) == (3, ())


def test_a_command_that_comes_out_otherwise_is_flagged(site, served):
    call = site.submit(served, "workspace.exec", command="date +%s%N | tee stamp.txt")
    result = site.run(call)
    assert "another stdout" in result.differs
    assert any("stamp.txt" in each for each in result.differs)
    event = next(e for e in reversed(site.services.log.read(served.session_id, 0)) if e.type == "tool.call.completed")
    assert event.payload["differs"] == list(result.differs)


def test_a_trial_has_no_network_no_secret_and_no_neighbour(site, served):
    look = "ls /sys/class/net; cat /proc/net/route | wc -l; env; ls /tmp; ls -a /run; getent hosts example.com; echo $?"
    shown = site.asked(site.submit(served, "workspace.exec", command=look)).shown["preview"]
    said = shown["stdout"]
    assert said.splitlines()[0] == "lo"
    assert said.splitlines()[-1] != "0"
    assert "PROXY" not in said.upper()
    assert "SECRET" not in said.upper()


def test_what_a_program_prints_to_deceive_is_kept_and_written_out_where_it_is_shown(site, served):
    line = r"printf '\033[2J\033]0;owned\007\342\200\256evil <script>\n'; printf x > $'a\n+++ b.txt'"
    shown = site.asked(site.submit(served, "workspace.exec", command=line)).shown["preview"]
    assert "\x1b[2J" in shown["stdout"]
    assert not any(row.startswith("+++ b.txt") for row in shown["diff"].splitlines())


def test_a_command_that_never_ends_is_shown_as_such(site, served, monkeypatch):
    monkeypatch.setattr("codesdk.toolcalls.previews.dry_run.TIMEOUT_S", 1.0)
    shown = site.asked(site.submit(served, "workspace.exec", command="echo before; sleep 1000")).shown["preview"]
    assert (shown["outcome"], shown["stdout"]) == ("timed_out", "before\n")


def test_a_workspace_of_30_mb_is_copied_and_a_call_that_runs_meanwhile_goes_on(site):
    if site.worker is None:
        site.start()
    subject = site.session()
    room = site.room(subject)
    fill = "head -c 30000000 /dev/urandom > big.bin; for i in $(seq 300); do echo $i > f$i.txt; done"
    assert run(room, "bash", "-c", fill).result.exit_code == 0
    call = site.submit(subject, "workspace.exec", command="rm f7.txt; wc -c < big.bin")
    ticks = 0
    deadline = time.monotonic() + LONG_S
    while not site.services.approvals.listing(subject.tenant_id, ApprovalState.PENDING, subject.session_id):
        assert run(room, "true").result.exit_code == 0
        ticks += 1
        assert time.monotonic() < deadline
    shown = site.asked(call).shown["preview"]
    assert (shown["stdout"], [file["path"] for file in shown["files"]]) == ("30000000\n", ["f7.txt"])
    assert ticks
    assert site.run(call).differs == ()


def test_whatever_moment_its_worker_is_killed_at_nothing_is_left_and_it_is_begun_again(site):
    site.stop()
    subject = site.session()
    calls = []
    for moment in ("row", "made", "taken", "removed", "ran"):
        program = Path(__file__).with_name("trying.py")
        given = site.settings.model_dump_json(include={"data_dir", "redis_url", "policies_dir", "poll_s"})
        told = [sys.executable, str(program), given, site.host, site.image, moment]
        calls.append(site.submit(subject, "workspace.exec", command=f"echo {moment}"))
        with subprocess.Popen(told, stdout=subprocess.PIPE) as dying:
            try:
                assert dying.stdout.readline() == b"ready\n"
                assert dying.wait(LONG_S) == -9
            finally:
                dying.kill()
        at = stored_call(site.services.database, calls[-1])
        assert (at.preview is not None, at.preview_tries) == (moment == "removed", 1)
        if moment != "ran":
            site.services.pipeline.cancel(at.tenant_id, at.subject.session_id, calls[-1], "next")
    site.start()
    asked = site.asked(calls[-1])
    assert asked.shown["preview"]["stdout"] == "ran\n"
    wait_for(lambda: site.copies() == [], "the copies to go", LONG_S)
    swept = site.sandboxes.sweep(site.owners)
    assert (swept.containers, swept.volumes) == ((), ())
    kinds = [event.type.value for event in site.services.log.read(subject.session_id)]
    assert kinds.count("approval.preview_started") == 6
    assert kinds.count("approval.requested") == 2
