"""Workspaces are stored as they change, and a session continues from the last snapshot elsewhere."""

from __future__ import annotations

import threading

import pytest

from codesdk.domain.quotas import Resource
from codesdk.sandbox.port.faults import SandboxGone
from codesdk.sandbox.port.files import FileWrite
from codesdk.sessions import NewSession, SessionUnknown
from codesdk.sessions.session import NoSnapshot, SessionNotEnded, SnapshotPending
from codesdk.worker.ownership.registration import register
from codesdk.worker.workspaces.workspace_snapshots import SnapshotLoop
from stage import wait_for

MOST = 1024 * 1024


class Photographer:
    """Sessions whose workspaces are kept, on a crew's sandboxes."""

    def __init__(self, stage, crew, most_bytes=MOST, every_s=0.0):
        self.stage, self.crew = stage, crew
        self.snapshots = SnapshotLoop(
            sandbox_registry=crew.sandbox_registry,
            host=crew.host,
            artifacts=stage.artifacts,
            database=stage.database,
            writer=stage.writer,
            log=stage.log,
            clock=stage.clock,
            most_bytes=most_bytes,
            every_s=every_s,
        )
        crew.sandbox_registry.on_removal(self.snapshots.take_last)

    def open(self, **wish):
        return self.stage.open_session(**{"snapshots": True, **wish})

    def write(self, subject, path="a", content=b"kept"):
        """A file, and a call that ended and may have written it."""
        self.crew.sandbox_registry.ready(subject.session_id).files.write((FileWrite(path=path, content=content),))
        call = self.stage.pipeline.submit("workspace.exec", {"command": "x"}, subject)
        self.crew.dispatcher._serve()
        return call

    def session(self, subject):
        return self.stage.sessions.find(subject.tenant_id, subject.session_id)

    def file(self, subject, path="a"):
        return self.crew.sandbox_registry.ready(subject.session_id).files.read(path).data


@pytest.fixture
def photographer(stage, crew):
    return Photographer(stage, crew)


def test_a_workspace_is_kept_after_a_call_that_may_have_written_and_not_again_until_the_next(stage, photographer):
    subject = photographer.open()
    assert photographer.snapshots.look() == 0
    photographer.write(subject)
    assert photographer.snapshots.look() == 1
    first = photographer.session(subject)
    assert first.snapshot_artifact is not None
    assert photographer.snapshots.look() == 0
    photographer.write(subject, content=b"later")
    assert photographer.snapshots.look() == 1
    kept = [artifact.id for artifact in stage.artifacts.of_session(subject.session_id)]
    assert kept == [photographer.session(subject).snapshot_artifact]
    assert first.snapshot_artifact not in kept


def test_only_sessions_that_are_opened_so_are_kept(photographer):
    photographer.write(photographer.open(snapshots=None))
    photographer.write(photographer.open(snapshots=False))
    assert photographer.snapshots.look() == 0


def test_two_snapshots_of_a_session_are_apart(stage, crew):
    photographer = Photographer(stage, crew, every_s=3600.0)
    subject = photographer.open()
    photographer.write(subject)
    assert photographer.snapshots.look() == 1
    photographer.write(subject)
    assert photographer.snapshots.look() == 0


def test_none_is_taken_while_a_call_runs_and_a_call_that_comes_waits_for_it(stage, crew, photographer):
    subject = photographer.open()
    photographer.write(subject)
    stage.pipeline.submit("workspace.exec", {"command": "y"}, subject)
    claimed = stage.claims(generation=crew.host.generation).take()
    assert photographer.snapshots.look() == 0
    with crew.sandbox_registry.hold_calls(subject.session_id):
        running = threading.Thread(target=crew.dispatcher._run, args=(claimed,))
        running.start()
        running.join(0.2)
        assert len(crew.sandboxes.runs) == 1
    running.join(10)
    assert len(crew.sandboxes.runs) == 2


def test_a_workspace_that_is_too_large_is_left_and_not_asked_about_at_every_look(stage, crew):
    photographer = Photographer(stage, crew, most_bytes=64 * 1024, every_s=60.0)
    subject = photographer.open()
    photographer.write(subject, content=b"x" * 128 * 1024)
    assert photographer.snapshots.look() == 0
    assert photographer.session(subject).snapshot_artifact is None
    assert list(photographer.snapshots._not_before) == [subject.session_id]
    stage.clock.advance(61.0)
    photographer.write(subject, content=b"x")
    assert photographer.snapshots.look() == 1


def test_a_tenants_quota_of_artifacts_holds_for_snapshots(stage, photographer):
    subject = photographer.open()
    photographer.write(subject)
    stage.limit(Resource.ARTIFACT_BYTES, 1)
    assert photographer.snapshots.look() == 0
    assert photographer.session(subject).snapshot_artifact is None


def test_a_worker_that_lost_its_host_keeps_nothing(stage, photographer):
    subject = photographer.open()
    photographer.write(subject)
    stage.sql("UPDATE hosts SET state = 'lost', generation = generation + 1")
    assert photographer.snapshots.look() == 0
    assert stage.artifacts.of_session(subject.session_id) == []


def test_a_closed_session_is_kept_once_more_before_its_sandbox_goes_and_is_opened_again(stage, crew, photographer):
    subject = photographer.open()
    photographer.write(subject)
    photographer.snapshots.look()
    photographer.write(subject, content=b"last words")
    stage.sessions.close(subject.tenant_id, subject.session_id)
    with pytest.raises(SnapshotPending):
        photographer.open(from_session=subject.session_id)
    crew.sandbox_registry.reconcile()
    again = photographer.open(from_session=subject.session_id)
    crew.sandbox_registry.reconcile()
    assert photographer.file(again) == b"last words"
    assert photographer.session(again).opened_from == subject.session_id
    told = [event.payload for event in stage.events(subject) if event.type == "sandbox.snapshot_taken"]
    assert [payload["last"] for payload in told] == [False, True]
    (restored,) = [event.payload for event in stage.events(again) if event.type == "sandbox.snapshot_restored"]
    assert restored["from_session"] == subject.session_id
    assert restored["snapshot"] == told[-1]["snapshot"]
    kept = stage.artifacts.find(subject.tenant_id, restored["snapshot"]["artifact_id"])
    assert restored["snapshot"] == {"artifact_id": kept.id, "content_hash": kept.content_hash, "size": kept.size}
    assert stage.events(again)[0].payload["opened_from"] == subject.session_id


def test_a_session_of_a_lost_host_goes_on_on_another_one(stage, crew, photographer):
    subject = photographer.open()
    photographer.write(subject)
    photographer.snapshots.look()
    other = register(stage.writer, stage.ids, "other", {"base": "sha256:" + "0" * 64}, 0.0)
    stage.sql("UPDATE hosts SET state = 'lost' WHERE name = 'local'")
    stage.sql("UPDATE sandboxes SET state = 'gone'")
    stage.sql("UPDATE sessions SET state = 'closed' WHERE id = :id", id=subject.session_id)
    again = photographer.open(from_session=subject.session_id)
    assert photographer.session(again).host_id == other.id
    crew.host = other
    crew.sandbox_registry._host = other
    crew.sandbox_registry.reconcile()
    assert photographer.file(again) == b"kept"


def test_a_snapshot_that_an_open_session_starts_from_is_not_replaced(stage, crew, photographer):
    subject = photographer.open()
    photographer.write(subject)
    stage.sessions.close(subject.tenant_id, subject.session_id)
    crew.sandbox_registry.reconcile()
    snapshot = photographer.session(subject).snapshot_artifact
    photographer.open(from_session=subject.session_id)
    found = stage.artifacts.find(subject.tenant_id, snapshot)
    assert not stage.writer.run(lambda unit: stage.artifacts.supersede(unit, found))
    assert stage.artifacts.find(subject.tenant_id, snapshot) == found


def test_a_sandbox_that_cannot_be_read_any_more_is_removed_all_the_same(stage, crew, photographer):
    subject = photographer.open()
    photographer.write(subject)

    def gone():
        raise SandboxGone("sbx", "it is gone")

    crew.sandbox_registry.ready(subject.session_id).snapshot = gone
    stage.sessions.close(subject.tenant_id, subject.session_id)
    crew.sandbox_registry.reconcile()
    state = "SELECT state FROM sandboxes WHERE session_id = :id"
    wait_for(lambda: stage.sql(state, id=subject.session_id)[0].state == "gone", "the removal")


def test_what_cannot_be_opened_from_is_refused_with_the_reason(stage, photographer):
    subject = photographer.open()
    with pytest.raises(SessionNotEnded):
        photographer.open(from_session=subject.session_id)
    stage.sessions.close(subject.tenant_id, subject.session_id)
    stage.sql("UPDATE sandboxes SET state = 'gone'")
    with pytest.raises(NoSnapshot):
        photographer.open(from_session=subject.session_id)
    stranger, _ = stage.enroll("other", "eve")
    with pytest.raises(SessionUnknown):
        stage.sessions.open(stranger, NewSession(from_session=subject.session_id))
    with pytest.raises(ValueError, match="not from both"):
        NewSession(from_session=subject.session_id, seed_artifact="art_x")
