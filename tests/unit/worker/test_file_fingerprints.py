"""Fingerprinting files for many calls at once: a hanging sandbox delays no other's approval."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import event

from codesdk.sandbox.port.faults import EngineUnavailable
from codesdk.toolcalls.approval import store as deferrals
from codesdk.toolcalls.records import store
from codesdk.worker.calls.dispatcher import SANDBOX_THREADS
from codesdk.worker.deferred_approvals.file_fingerprints import FileFingerprints
from databases import ONLY_SQLITE
from stage import Room, bundle, wait_for

ASKING = """\
version: 1
default: deny
rules:
  - {id: all, effect: ask, tool: workspace.write}
"""


class Rooms:
    """A room for each session; some hang until a test lets them go."""

    def __init__(self):
        self.hung = {}
        self.asked = []

    def ready(self, session):
        self.asked.append(session)
        gate = self.hung.get(session)
        if gate is not None:
            assert gate.wait(20)
        return Room()


@pytest.fixture
def sandbox_registry():
    return Rooms()


@pytest.fixture
def looking(stage, tmp_path, sandbox_registry):
    stage.bundle = bundle(tmp_path / "asking", ASKING, stage.registry)
    stage.pipeline = stage.pipeline_with(stage.bundle)
    stage.pipeline.looks = False
    return FileFingerprints(
        host=stage.host, sandbox_registry=sandbox_registry, deferred_approvals=stage.deferred, database=stage.database
    )


def threaded(work):
    threading.Thread(target=work, daemon=True).start()


def test_a_sandbox_that_hangs_holds_up_no_other_question_and_is_not_asked_twice(stage, looking, sandbox_registry):
    other = stage.open_session()
    for subject in (stage.subject, other):
        stage.pipeline.submit("workspace.write", {"path": "a", "content": "1"}, subject)
    gate = sandbox_registry.hung[stage.subject.session_id] = threading.Event()
    looking.look(threaded)
    wait_for(lambda: len(stage.pending()) == 1, "the other's question")
    looking.look(threaded)
    assert sandbox_registry.asked.count(stage.subject.session_id) == 1
    gate.set()
    wait_for(lambda: len(stage.pending()) == 2, "both questions")


def test_what_failed_is_looked_at_again(stage, looking, sandbox_registry):
    stage.pipeline.submit("workspace.write", {"path": "a", "content": "1"}, stage.subject)
    looking.look(lambda _work: None)  # as when a pool is full, and its worker dies before it comes to it
    assert stage.pending() == []
    FileFingerprints(
        host=stage.host, sandbox_registry=sandbox_registry, deferred_approvals=stage.deferred, database=stage.database
    ).look()
    assert len(stage.pending()) == 1


def test_questions_are_put_one_at_a_time_so_that_they_never_stand_in_a_row_before_other_calls(
    stage, looking, monkeypatch
):
    for number in range(3):
        stage.pipeline.submit("workspace.write", {"path": "a", "content": str(number)}, stage.open_session())
    lock = threading.Lock()
    inside = []
    peaks = []
    put = stage.deferred.put

    def slow(call, marks, **more):
        with lock:
            inside.append(call)
            peaks.append(len(inside))
        threading.Event().wait(0.3)  # long enough for the others to come, which nothing else keeps from it
        put(call, marks, **more)
        with lock:
            inside.remove(call)

    monkeypatch.setattr(stage.deferred, "put", slow)
    looking.look(threaded)
    wait_for(lambda: len(stage.pending()) == 3, "all questions")
    assert peaks == [1, 1, 1]


def test_a_worker_that_stops_leaves_the_rest_of_a_sandboxs_calls_to_the_next(stage, looking, sandbox_registry):
    for number in range(3):
        stage.pipeline.submit("workspace.write", {"path": "a", "content": str(number)}, stage.subject)
    gate = sandbox_registry.hung[stage.subject.session_id] = threading.Event()
    looking.look(threaded)
    wait_for(lambda: sandbox_registry.asked, "the first look")
    looking.stop()
    gate.set()
    wait_for(lambda: len(stage.pending()) == 1 and not looking._at_work, "the one that was begun")
    FileFingerprints(
        host=stage.host, sandbox_registry=sandbox_registry, deferred_approvals=stage.deferred, database=stage.database
    ).look()
    assert len(stage.pending()) == 3


def test_however_many_calls_of_one_sandbox_hang_they_take_one_thread(stage, looking, sandbox_registry):
    other = stage.open_session()
    for number in range(4):
        stage.pipeline.submit("workspace.write", {"path": f"{number}", "content": "1"}, stage.subject)
    stage.pipeline.submit("workspace.write", {"path": "a", "content": "1"}, other)
    gate = sandbox_registry.hung[stage.subject.session_id] = threading.Event()
    with ThreadPoolExecutor(SANDBOX_THREADS) as threads:
        try:
            looking.look(threads.submit)
            wait_for(lambda: len(stage.pending()) == 1, "the other's question")
        finally:
            gate.set()
        wait_for(lambda: len(stage.pending()) == 5, "every question")


@pytest.fixture
def few(monkeypatch):
    """A look finds two calls at most."""
    monkeypatch.setattr(deferrals, "BATCH_SIZE", 2)


def ask(stage, subject, count):
    return [
        stage.pipeline.submit("workspace.write", {"path": f"{number}", "content": "1"}, subject)
        for number in range(count)
    ]


def test_one_question_waits_for_no_other_tenants_many(stage, looking, few):
    ask(stage, stage.subject, 5)
    other, _ = stage.enroll("other", "dev")
    (one,) = ask(stage, stage.open_session(other), 1)
    looking.look()
    with stage.database.read() as connection:
        assert store.find(connection, one.identity.tool_call_id).preparing is None


def test_a_long_queue_is_seen_to_without_a_poll(stage, looking, few):
    ask(stage, stage.subject, 5)
    looks = [None]
    while looks:
        looks.pop()
        looking.look(again=lambda: looks.append(None))
    assert len(stage.pending()) == 5


def test_what_cannot_be_seen_to_is_not_looked_at_in_a_circle(stage, looking, sandbox_registry, few):
    ask(stage, stage.subject, 5)

    def away(_session):
        raise EngineUnavailable("engine", "It does not answer.")

    sandbox_registry.ready = away
    looking.look(again=lambda: pytest.fail("the next poll looks, and not before"))
    assert stage.pending() == []


def test_what_cannot_be_seen_to_takes_no_thread_for_the_rest_of_its_sandboxs_calls(stage, looking, sandbox_registry):
    ask(stage, stage.subject, 3)

    def slow(session):
        sandbox_registry.asked.append(session)
        raise EngineUnavailable("engine", "It did not answer for a while.")

    sandbox_registry.ready = slow
    looking.look()
    assert sandbox_registry.asked == [stage.subject.session_id]


def test_a_question_that_cannot_be_put_keeps_its_sandbox_from_no_later_look(stage, looking, monkeypatch):
    ask(stage, stage.subject, 2)

    def breaks(*_, **__):
        raise KeyError("a defect")

    with monkeypatch.context() as broken:
        broken.setattr(stage.deferred, "put", breaks)
        with pytest.raises(KeyError):
            looking.look()
    looking.look()
    assert len(stage.pending()) == 2


@pytest.mark.parametrize("find", ["awaiting_fingerprints", "awaiting_dry_run"])
def test_one_question_waits_for_no_other_sessions_many(stage, looking, few, find):
    ask(stage, stage.subject, 5)
    (one,) = ask(stage, stage.open_session(), 1)
    if find == "awaiting_dry_run":
        stage.sql("UPDATE tool_calls SET preview_tries = 0")
    with stage.database.read() as connection:
        found = getattr(deferrals, find)(connection, stage.host.id)
    assert [stored.identity.tool_call_id for stored in found][1:] == [one.identity.tool_call_id]


def test_a_tenants_sessions_together_have_no_more_turns_than_anothers_one(stage, looking, monkeypatch):
    monkeypatch.setattr(deferrals, "BATCH_SIZE", 4)
    for subject in (stage.subject, stage.open_session(), stage.open_session()):
        ask(stage, subject, 2)
    other, _ = stage.enroll("other", "dev")
    subject = stage.open_session(other)
    ask(stage, subject, 2)
    with stage.database.read() as connection:
        found = deferrals.awaiting_fingerprints(connection, stage.host.id)
    assert [stored.tenant_id for stored in found].count(subject.tenant_id) == 2


@ONLY_SQLITE
@pytest.mark.parametrize("find", ["awaiting_fingerprints", "awaiting_dry_run"])
def test_the_look_reads_only_calls_that_wait_for_it(stage, looking, find):
    engine, statements = stage.database.reader, []

    def note(_connection, _cursor, statement, parameters, *_more):
        statements.append((statement, parameters))

    with stage.database.read() as connection:
        event.listen(engine, "before_cursor_execute", note)
        getattr(deferrals, find)(connection, stage.host.id)
        event.remove(engine, "before_cursor_execute", note)
        ((statement, given),) = statements
        steps = [row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", given)]
    of_calls = [step for step in steps if " tool_calls " in step]
    assert any("ix_tool_calls_preparing" in step for step in of_calls), steps
    assert all("ix_tool_calls_preparing" in step or "(id=?)" in step for step in of_calls), steps
