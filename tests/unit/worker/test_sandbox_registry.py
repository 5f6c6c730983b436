from __future__ import annotations

import io
import tarfile
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from codesdk.sandbox.fake.processes import FakeProcesses
from codesdk.sandbox.port import ExecRequest
from codesdk.sandbox.port.faults import ArchiveRefused, EngineUnavailable
from codesdk.sandbox.records import store
from codesdk.sessions import NewSession
from codesdk.worker.calls.dispatcher import SANDBOX_THREADS
from codesdk.worker.sandboxes.reconciliation import MAX_REMOVALS, REMOVAL_PASSES
from codesdk.worker.sandboxes.registry import RETRY_S, SandboxEnded
from stage import wait_for


def states(stage):
    return [row.state for row in stage.sql("SELECT state FROM sandboxes ORDER BY id")]


def owner(stage, session=None):
    ((found,),) = stage.sql("SELECT id FROM sandboxes WHERE session_id = :s", s=session or stage.session.id)
    return found


def test_a_wanted_sandbox_is_opened_and_said(stage, crew):
    crew.sandbox_registry.reconcile()
    assert states(stage) == ["ready"]
    assert crew.sandboxes.living == (owner(stage),)
    started = stage.events()[-1]
    assert started.type == "sandbox.started"
    assert started.payload["attestation"]["network_interfaces"] == ["lo"]


def test_calls_that_come_together_open_one_sandbox(stage, crew):
    opened = []
    make = crew.sandboxes.open

    def count(spec):
        opened.append(spec.owner)
        return make(spec)

    crew.sandboxes.open = count
    start = threading.Barrier(8)

    def enter(_):
        start.wait(10)
        return crew.sandbox_registry.ready(stage.session.id)

    with ThreadPoolExecutor(8) as pool:
        sandbox_registry = list(pool.map(enter, range(8)))
    assert len({id(room) for room in sandbox_registry}) == 1
    assert len(opened) == 1


def test_a_closing_sandbox_is_removed_and_said(stage, crew):
    crew.sandbox_registry.reconcile()
    stage.sessions.close(stage.principal.tenant_id, stage.session.id)
    crew.sandbox_registry.reconcile()
    assert states(stage) == ["gone"]
    assert crew.sandboxes.living == ()
    assert stage.types()[-1] == "sandbox.stopped"
    with pytest.raises(SandboxEnded):
        crew.sandbox_registry.ready(stage.session.id)


def test_a_session_closed_while_its_sandbox_is_made_leaves_none(stage, crew):
    make = crew.sandboxes.open

    def slow(spec):
        made = make(spec)
        stage.sessions.close(stage.principal.tenant_id, stage.session.id)
        return made

    crew.sandboxes.open = slow
    with pytest.raises(SandboxEnded):
        crew.sandbox_registry.ready(stage.session.id)
    assert crew.sandboxes.living == ()
    assert "sandbox.started" not in stage.types()
    crew.sandbox_registry.reconcile()
    assert states(stage) == ["gone"]


def test_an_engine_that_is_away_is_tried_again_and_not_at_once(stage, crew):
    crew.sandboxes.engine_down = True
    crew.sandbox_registry.reconcile()
    assert states(stage) == ["wanted"]
    crew.sandboxes.engine_down = False
    crew.sandbox_registry.reconcile()
    assert states(stage) == ["wanted"]
    stage.clock.advance(RETRY_S)
    crew.sandbox_registry.reconcile()
    assert states(stage) == ["ready"]


def test_a_seed_that_is_no_archive_is_not_tried_again_by_itself(stage, crew):
    seed = stage.artifacts.put(b"no tar", stage.principal.tenant_id, None, content_type="x", name="seed")
    stage.writer.run(lambda unit: stage.artifacts.record(unit, seed))
    session, token = stage.sessions.open(stage.principal, NewSession(seed_artifact=seed.id))
    for _ in range(5):
        crew.sandbox_registry.reconcile()
        stage.clock.advance(10 * RETRY_S)
    assert stage.types(stage.subject_of(token)) == ["sandbox.failed"]
    with pytest.raises(ArchiveRefused):
        crew.sandbox_registry.ready(session.id)


def test_a_call_does_not_wait_for_the_pause(stage, crew):
    crew.sandboxes.engine_down = True
    crew.sandbox_registry.reconcile()
    crew.sandboxes.engine_down = False
    assert crew.sandbox_registry.ready(stage.session.id).owner == owner(stage)


def test_a_sandbox_that_cannot_be_removed_yet_stays_closing(stage, crew):
    crew.sandbox_registry.reconcile()
    stage.sessions.close(stage.principal.tenant_id, stage.session.id)
    crew.sandboxes.engine_down = True
    crew.sandbox_registry.reconcile()
    assert states(stage) == ["closing"]
    crew.sandboxes.engine_down = False
    crew.sandbox_registry.reconcile()
    assert states(stage) == ["gone"]


def test_a_sweep_removes_what_has_no_owner_and_nothing_else(stage, crew):
    crew.sandbox_registry.reconcile()
    stage.open_session()
    crew.sandbox_registry.reconcile()
    stage.sql("UPDATE sandboxes SET state = 'gone' WHERE id = :id", id=owner(stage))
    crew.sandbox_registry.sweep()
    assert crew.sandboxes.living == tuple(row.id for row in stage.sql("SELECT id FROM sandboxes WHERE state = 'ready'"))


def test_a_sandbox_opened_during_a_sweep_survives_it(stage, crew):
    sweep = crew.sandboxes.sweep

    def sweep_late(alive):
        crew.sandbox_registry.ready(stage.session.id)  # between the start of the sweep and the engine's answer
        return sweep(alive)

    crew.sandboxes.sweep = sweep_late
    other = stage.open_session()

    def open_more(alive):
        crew.sandbox_registry.ready(other.session_id)
        return sweep_late(alive)

    crew.sandboxes.sweep = open_more
    crew.sandbox_registry.sweep()
    assert len(crew.sandboxes.living) == 2


def test_a_connection_that_failed_is_attached_again(stage, crew):
    first = crew.sandbox_registry.ready(stage.session.id)
    crew.sandbox_registry.forget(stage.session.id)
    second = crew.sandbox_registry.ready(stage.session.id)
    assert second is not first
    assert second.owner == first.owner


@pytest.mark.parametrize("engine_down", [False, True], ids=["it answers", "its engine is away"])
def test_a_sandbox_that_was_said_to_be_gone_and_may_be_well_is_left_to_what_runs_in_it(stage, crew, engine_down):
    sandbox = crew.sandbox_registry.ready(stage.session.id)
    with ThreadPoolExecutor(1) as pool:
        try:
            running = pool.submit(sandbox.exec, ExecRequest(call="c", argv=("hold",)), lambda _: None)
            wait_for(lambda: crew.sandboxes.runs, "the command")
            crew.sandboxes.engine_down = engine_down
            assert crew.sandbox_registry.lose(stage.session.id, sandbox)
        finally:
            crew.sandboxes.engine_down = False
            crew.hold.set()
        assert running.result(20).exit_code == 0
    assert crew.sandbox_registry.live(stage.session.id) is sandbox


def test_nobody_waits_for_the_room_of_a_sandbox_that_is_asked_whether_it_lives(stage, crew, monkeypatch):
    sandbox = crew.sandbox_registry.ready(stage.session.id)
    asked, go_on = threading.Event(), threading.Event()

    def hangs(_self):
        asked.set()
        assert go_on.wait(20)
        return ()

    monkeypatch.setattr(FakeProcesses, "list", hangs)
    with ThreadPoolExecutor(1) as pool:
        try:
            losing = pool.submit(crew.sandbox_registry.lose, stage.session.id, sandbox)
            assert asked.wait(20)
            assert crew.sandbox_registry.ready(stage.session.id) is sandbox
        finally:
            go_on.set()
        assert losing.result(20)


def test_a_sandbox_that_crashed_and_left_nothing_ends_its_room(stage, crew):
    crew.sandbox_registry.reconcile()
    crew.sandboxes.crash(owner(stage), keeps=False)
    crew.sandbox_registry.forget(stage.session.id)
    with pytest.raises(SandboxEnded, match="gone"):
        crew.sandbox_registry.ready(stage.session.id)
    assert states(stage) == ["closing"]


def seed(stage, content):
    kept = stage.artifacts.put(
        content, stage.principal.tenant_id, None, content_type="application/x-tar", name="seed.tar"
    )
    stage.writer.run(lambda unit: stage.artifacts.record(unit, kept))
    _, token = stage.sessions.open(stage.principal, NewSession(seed_artifact=kept.id))
    return stage.subject_of(token).session_id


def test_a_workspace_starts_from_its_seed(stage, crew):
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        info = tarfile.TarInfo("a.txt")
        info.size = 5
        tar.addfile(info, io.BytesIO(b"hello"))
    room = crew.sandbox_registry.ready(seed(stage, archive.getvalue()))
    assert room.files.read("a.txt").data == b"hello"


def test_a_seed_that_is_no_archive_fails_and_says_so(stage, crew):
    session = seed(stage, b"no archive")
    with pytest.raises(ArchiveRefused):
        crew.sandbox_registry.ready(session)
    failed = stage.log.read(session)[-1]
    assert failed.type == "sandbox.failed"
    assert crew.sandbox_registry.live(session) is None


def test_letting_go_leaves_sandboxes_alive_for_the_next_worker(stage, crew):
    crew.sandbox_registry.reconcile()
    crew.sandbox_registry.close()
    assert crew.sandboxes.living == (owner(stage),)
    later = crew.next()
    assert later.sandbox_registry.ready(stage.session.id).owner == owner(stage)


def test_an_engine_that_is_away_reaches_the_caller(stage, crew):
    crew.sandboxes.engine_down = True
    with pytest.raises(EngineUnavailable):
        crew.sandbox_registry.ready(stage.session.id)


def test_two_passes_at_once_do_not_remove_the_same_sandbox_twice(stage, crew):
    crew.sandbox_registry.reconcile()
    stage.sessions.close(stage.principal.tenant_id, stage.session.id)
    destroy, asked = crew.sandboxes.destroy, []

    def slow(owner):
        asked.append(owner)
        crew.sandbox_registry.reconcile()  # what another thread does meanwhile
        destroy(owner)

    crew.sandboxes.destroy = slow
    crew.sandbox_registry.reconcile()
    assert asked == [owner(stage)]
    assert states(stage) == ["gone"]


def test_a_wanted_sandbox_does_not_wait_for_hundreds_of_removals(stage, crew):
    """Found by the soak: 416 removals stood before every new session."""
    for _ in range(MAX_REMOVALS + 3):
        subject = stage.open_session()
        crew.sandbox_registry.ready(subject.session_id)
        stage.sessions.close(subject.tenant_id, subject.session_id)
    crew.sandbox_registry.reconcile()
    assert crew.sandbox_registry.live(stage.session.id) is not None
    assert states(stage).count("closing") == 3
    crew.sandbox_registry.reconcile()
    assert states(stage).count("closing") == 0


def test_a_pass_does_not_wait_for_a_sandbox_that_a_call_is_opening(stage, crew):
    opening, go_on = threading.Event(), threading.Event()
    make = crew.sandboxes.open

    def slow(spec):
        opening.set()
        go_on.wait(10)
        return make(spec)

    crew.sandboxes.open = slow
    with ThreadPoolExecutor(1) as pool:
        ready = pool.submit(crew.sandbox_registry.ready, stage.session.id)
        assert opening.wait(10)
        crew.sandbox_registry.reconcile()
        assert not ready.done()
        go_on.set()
        assert ready.result(10).owner == owner(stage)


def test_the_images_of_hosts_and_living_sandboxes_are_wanted_and_those_of_ended_ones_are_not(stage):
    stage.sql("UPDATE sandboxes SET image = 'sha256:living'")
    with stage.database.read() as connection:
        assert store.images_in_use(connection) == {"sha256:living", "sha256:" + "0" * 64}
    stage.sql("UPDATE sandboxes SET state = 'gone'")
    with stage.database.read() as connection:
        assert store.images_in_use(connection) == {"sha256:" + "0" * 64}


def closed_ones(stage, crew, number):
    """Open sandboxes of so many sessions that were closed then; their owners."""
    owners = []
    for _ in range(number):
        subject = stage.open_session()
        owners.append(crew.sandbox_registry.ready(subject.session_id).owner)
        stage.sessions.close(subject.tenant_id, subject.session_id)
    return owners


def test_removals_that_are_put_off_hold_up_no_other(stage, crew, monkeypatch):
    *busy, last = closed_ones(stage, crew, MAX_REMOVALS + 1)
    monkeypatch.setattr(crew.sandbox_registry._removal_grace, "should_wait", lambda row: row.id in busy)
    crew.sandbox_registry.reconcile()
    assert crew.sandboxes.living == tuple(sorted({*busy, owner(stage)}))
    assert last not in crew.sandboxes.living


def test_sandboxes_that_cannot_be_removed_come_after_those_that_can(stage, crew):
    """Else as many as one pass removes would keep all others for ever."""
    destroy, tried = crew.sandboxes.destroy, []
    stuck = set(closed_ones(stage, crew, MAX_REMOVALS))

    def destroys(sandbox):
        tried.append(sandbox)
        if sandbox in stuck:
            raise EngineUnavailable("unix:///test", "a device is busy")
        destroy(sandbox)

    crew.sandboxes.destroy = destroys
    crew.sandbox_registry.reconcile()
    assert set(tried) == stuck
    (later,) = closed_ones(stage, crew, 1)
    tried.clear()
    crew.sandbox_registry.reconcile()
    assert tried[0] == later
    assert later not in crew.sandboxes.living
    stuck.clear()
    crew.sandbox_registry.reconcile()
    assert crew.sandboxes.living == (owner(stage),)


def test_removals_that_hang_hold_up_no_opening(stage, crew):
    closed_ones(stage, crew, SANDBOX_THREADS)
    hanging, go_on = threading.Semaphore(0), threading.Event()

    def hangs(_owner):
        hanging.release()
        go_on.wait(60)

    crew.sandboxes.destroy = hangs
    crew.sandbox_registry._reconciler._start = lambda _row: None
    with ThreadPoolExecutor(SANDBOX_THREADS) as chores:
        try:
            for _ in range(SANDBOX_THREADS):
                chores.submit(crew.sandbox_registry.reconcile)
            assert all(hanging.acquire(timeout=30) for _ in range(REMOVAL_PASSES))
            crew.sandbox_registry._reconciler._start = crew.sandbox_registry._try_open
            chores.submit(crew.sandbox_registry.reconcile).result(30)
            assert crew.sandbox_registry.live(stage.session.id) is not None
        finally:
            go_on.set()
