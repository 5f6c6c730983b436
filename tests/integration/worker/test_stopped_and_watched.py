"""A session's sandbox on a real engine: its changed files are told, it is stopped, and comes back with its workspace."""

from __future__ import annotations

import uuid

import pytest

from codesdk.sandbox.docker_driver import DockerSandboxes
from codesdk.sandbox.engine import Engine
from codesdk.worker.host import register
from codesdk.worker.rooms import Rooms
from codesdk.worker.watching import PAUSE_S, Watching
from sandboxes import run
from stage import wait_for

pytestmark = pytest.mark.engine


@pytest.fixture
def rooms(stage, engine, sandbox_image, tmp_path):
    host = register(stage.writer, stage.ids, "local", {"base": sandbox_image}, 0.0)
    instance = f"test-{uuid.uuid4().hex}"
    sandboxes = DockerSandboxes(instance, Engine(engine.host), workspaces=tmp_path / "workspaces")
    made = Rooms(
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


def test_a_watched_session_is_told_of_files_before_and_after_its_sandbox_was_stopped(stage, rooms):
    subject = stage.open_session(watch=True)
    watching = Watching(
        rooms=rooms, host=rooms._host, database=stage.database, log=stage.log, writer=stage.writer, clock=stage.clock
    )

    def told(path):
        def seen():
            stage.clock.advance(PAUSE_S)
            watching.look()
            events = [event for event in stage.events(subject) if event.type == "sandbox.files_changed"]
            return path in [change["path"] for event in events for change in event.payload.get("changes", ())]

        return seen

    sandbox = rooms.ready(subject.session_id)
    watching.look()
    run(sandbox, "sh", "-c", "mkdir deep && echo 1 > deep/first")
    wait_for(told("deep/first"), "the first file")
    stage.sessions.stop_sandbox(subject.tenant_id, subject.session_id)
    rooms.reconcile()
    state = stage.sessions.sandbox(subject.tenant_id, subject.session_id).state
    assert state == "stopped"
    again = rooms.ready(subject.session_id)
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
