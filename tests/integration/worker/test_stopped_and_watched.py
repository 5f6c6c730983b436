"""A session's sandbox on a real engine: file changes are reported; it is stopped, and keeps its workspace."""

from __future__ import annotations

import uuid

import pytest

from codesdk.sandbox.docker.driver import DockerSandboxes
from codesdk.sandbox.docker.engine import Engine
from codesdk.worker.ownership.registration import register
from codesdk.worker.sandboxes.registry import SandboxRegistry
from codesdk.worker.workspaces.file_watch import PAUSE_S, FileWatch
from sandboxes import run
from stage import wait_for

pytestmark = pytest.mark.engine


@pytest.fixture
def sandbox_registry(stage, engine, sandbox_image, tmp_path):
    host = register(stage.writer, stage.ids, "local", {"base": sandbox_image}, 0.0)
    instance = f"test-{uuid.uuid4().hex}"
    sandboxes = DockerSandboxes(instance, Engine(engine.host), workspaces=tmp_path / "workspaces")
    made = SandboxRegistry(
        sandboxes=sandboxes,
        host=host,
        instance=instance,
        database=stage.database,
        writer=stage.writer,
        log=stage.log,
        artifacts=stage.artifacts,
        clock=stage.clock,
    )
    yield made
    made.close()
    sandboxes.sweep(())
    sandboxes.close()


def test_a_watched_session_is_told_of_files_before_and_after_its_sandbox_was_stopped(stage, sandbox_registry):
    subject = stage.open_session(watch=True)
    watching = FileWatch(
        sandbox_registry=sandbox_registry,
        host=sandbox_registry._host,
        database=stage.database,
        log=stage.log,
        writer=stage.writer,
        clock=stage.clock,
    )

    def told(path):
        def seen():
            stage.clock.advance(PAUSE_S)
            watching.look()
            events = [event for event in stage.events(subject) if event.type == "sandbox.files_changed"]
            return path in [change["path"] for event in events for change in event.payload.get("changes", ())]

        return seen

    sandbox = sandbox_registry.ready(subject.session_id)
    watching.look()
    run(sandbox, "sh", "-c", "mkdir deep && echo 1 > deep/first")
    wait_for(told("deep/first"), "the first file")
    stage.sessions.stop_sandbox(subject.tenant_id, subject.session_id)
    sandbox_registry.reconcile()
    state = stage.sessions.sandbox(subject.tenant_id, subject.session_id).state
    assert state == "stopped"
    again = sandbox_registry.ready(subject.session_id)
    assert run(again, "cat", "deep/first").stdout == b"1\n"
    stage.clock.advance(PAUSE_S)
    watching.look()
    stage.clock.advance(PAUSE_S)
    watching.look()
    run(again, "sh", "-c", "echo 2 > second")
    wait_for(told("second"), "the second file")
    phases = [event.payload["phase"] for event in stage.events(subject) if event.type == "sandbox.files_changed"]
    assert phases.count("begun") == 2
    kinds = [event.type for event in stage.events(subject)]
    assert kinds.index("sandbox.halted") < len(kinds) - 1 - kinds[::-1].index("sandbox.started")
