"""A worker that is really killed within a file operation."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from codesdk.bootstrap import Services
from codesdk.domain.invariants import first_violation
from codesdk.eventlog.hints import LocalHints
from codesdk.jobs import LocalWakeups
from codesdk.sandbox.local.driver import LocalSandboxes
from codesdk.sessions import NewSession
from codesdk.settings import Settings
from codesdk.tenancy.principal import Role
from codesdk.toolcalls.records.call_record import Finished
from codesdk.worker.lifecycle.worker import Worker
from local_sandboxes import plain
from stage import POLICY, wait_for

PATIENCE_S = 60.0


def test_a_reading_file_operation_whose_worker_was_killed_is_another_attempts_and_the_first_has_its_own_end(tmp_path):
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "policy.yaml").write_text(POLICY)
    settings = Settings(
        data_dir=tmp_path / "data", policies_dir=tmp_path / "policies", poll_s=0.1, worker_threads=2, warm_pool=0
    )
    settings.prepare_data_dir()
    api = Services(settings, hints=LocalHints(), wakeups=LocalWakeups())
    given = settings.model_dump_json(include={"data_dir", "policies_dir", "poll_s", "worker_threads", "warm_pool"})
    argv = [sys.executable, str(Path(__file__).with_name("reading.py")), given]
    dying = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    sandboxes = LocalSandboxes(settings.instance_id(), settings.data_dir / "local", plain())
    try:
        try:
            assert dying.stdout.readline() == b"ready\n"
            principal, _ = api.writer.run(
                lambda unit: api.directory.enroll(unit, "default", "dev", (Role.DEVELOPER, Role.APPROVER))
            )
            _, token = api.sessions.open(principal, NewSession())
            subject = api.directory.subject(token)
            call = api.pipeline.submit("workspace.read", {"path": "a"}, subject).identity.tool_call_id
            assert dying.stdout.readline() == b"reading\n"
        finally:
            dying.kill()
            dying.wait()
            dying.stdout.close()
        worker = Worker(api, sandboxes, {"base": sandboxes.image})
        worker.start()
        try:

            def end():
                found = api.pipeline.find(subject.tenant_id, subject.session_id, call)
                return found if isinstance(found, Finished) else None

            found = wait_for(end, "the call to end", PATIENCE_S)
        finally:
            worker.stop()
        assert (found.identity.attempt, found.result.code) == (2, "NOT_FOUND")
        events = api.log.read(subject.session_id)
        ends = [event.payload for event in events if event.type == "tool.call.completed"]
        assert [(each["attempt"], each["code"]) for each in ends] == [(1, "WORKER_LOST"), (2, "NOT_FOUND")]
        assert first_violation(events) is None
    finally:
        api.close()
        sandboxes.sweep(())
        sandboxes.close()
