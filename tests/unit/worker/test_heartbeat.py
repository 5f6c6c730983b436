"""A worker sends heartbeats, and learns when it no longer owns its host."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from codesdk.domain.calls import IllegalTransition
from codesdk.sandbox.port import SandboxMissing
from codesdk.sandbox.records import store
from codesdk.sandbox.records.store import SandboxState
from codesdk.storage.faults import StorageUnavailable
from codesdk.worker.ownership.heartbeat import Heartbeat, HostGone
from stage import wait_for


@pytest.fixture
def heartbeat(stage):
    made = Heartbeat(stage.writer, stage.clock, stage.host, 30.0)
    yield made
    made.stop()


def beats(stage):
    return stage.sql("SELECT heartbeat FROM hosts")[0].heartbeat


def test_it_beats_on_its_own_thread(stage):
    heartbeat = Heartbeat(stage.writer, stage.clock, stage.host, 0.06)
    heartbeat.start()
    wait_for(lambda: beats(stage) > 2, "heartbeats")
    heartbeat.stop()


def test_who_is_told_hears_that_a_newer_worker_has_the_host(stage):
    heartbeat, told = Heartbeat(stage.writer, stage.clock, stage.host, 0.06), threading.Event()
    heartbeat.on_fenced(told.set)
    stage.register()
    heartbeat.start()
    assert told.wait(10)
    with pytest.raises(HostGone):
        heartbeat.check()
    heartbeat.stop()


def test_a_young_beat_is_not_asked_about_again(stage, heartbeat):
    stage.register()
    stage.clock.advance(14.0)
    heartbeat.confirm()


def test_who_could_not_beat_for_half_the_lease_asks_before_anything_starts(stage, heartbeat):
    stage.clock.advance(16.0)
    heartbeat.confirm()
    assert beats(stage) == 1
    heartbeat.confirm()
    assert beats(stage) == 1
    stage.sql("UPDATE hosts SET state = 'lost', generation = generation + 1")
    stage.clock.advance(16.0)
    with pytest.raises(HostGone):
        heartbeat.confirm()
    assert heartbeat.is_fenced


def test_where_nobody_can_say_nothing_starts(stage, heartbeat, monkeypatch):
    def away(_work):
        raise StorageUnavailable("away")

    monkeypatch.setattr(stage.writer, "run", away)
    stage.clock.advance(16.0)
    with pytest.raises(StorageUnavailable):
        heartbeat.confirm()
    heartbeat.leave()  # says so in its log, and lets the worker stop
    assert not heartbeat.is_fenced


def test_leaving_is_in_the_row(stage, heartbeat):
    heartbeat.leave()
    assert stage.sql("SELECT left_at FROM hosts")[0].left_at is not None


@pytest.fixture
def thawed(stage, crew):
    """A worker that was frozen for longer than its lease; another has registered meanwhile."""
    heartbeat = Heartbeat(stage.writer, stage.clock, stage.host, 30.0)
    crew.sandbox_registry._confirm = heartbeat.confirm
    call = stage.pipeline.submit("workspace.exec", {"command": "x"}, stage.subject)
    crew.claimed = stage.claims().take()
    crew.call = call.identity.tool_call_id
    stage.clock.advance(16.0)
    crew.successor = crew.next()
    return crew


def test_a_call_that_was_claimed_before_the_worker_froze_is_run_by_the_one_that_has_its_host_now(stage, thawed):
    with pytest.raises(HostGone):
        thawed.dispatcher._run(thawed.claimed)
    assert (thawed.sandboxes.runs, thawed.sandboxes.living) == ([], ())
    thawed.successor.recovery.take_up()
    assert stage.find(thawed.call).result.structured["stdout"] == "x"
    assert len(thawed.sandboxes.runs) == 1


def test_a_worker_that_was_replaced_while_it_was_frozen_makes_no_sandbox(stage, thawed):
    with pytest.raises(HostGone):
        thawed.sandbox_registry.ready(stage.session.id)
    thawed.sandbox_registry.reconcile()
    assert thawed.sandboxes.living == ()


def test_it_stops_none_and_removes_none_that_its_successor_has_brought_back(stage, thawed, monkeypatch):
    thawed.successor.sandbox_registry.ready(stage.session.id)
    with stage.database.read() as connection:
        row = store.of_session(connection, stage.session.id)
    for state in (SandboxState.HALTING, SandboxState.CLOSING):  # as it read them before it froze
        with pytest.raises(HostGone):
            thawed.sandbox_registry._end(row.model_copy(update={"state": state}))
    assert thawed.sandboxes.living == (row.id,)
    assert thawed.successor.sandbox_registry.ready(stage.session.id).files.list(".").entries == ()


def test_nor_one_that_it_did_not_find_since_it_was_frozen_while_it_looked(stage, crew, monkeypatch):
    heartbeat = Heartbeat(stage.writer, stage.clock, stage.host, 30.0)
    crew.sandbox_registry._confirm = crew.sandbox_registry._reattacher._confirm = heartbeat.confirm
    crew.sandbox_registry.ready(stage.session.id)
    crew.sandbox_registry.forget(stage.session.id)
    successor = crew.next()

    def freezes(owner, _generation):
        stage.clock.advance(16.0)
        successor.sandbox_registry.ready(stage.session.id)
        return SandboxMissing(owner=owner, reason="it did not answer in time")

    monkeypatch.setattr(
        crew.sandbox_registry._reattacher._sandboxes, "reattach", Once(freezes, crew.sandboxes.reattach)
    )
    with pytest.raises(HostGone):
        crew.sandbox_registry.ready(stage.session.id)
    assert len(crew.sandboxes.living) == 1


class Once:
    """Another thing the first time."""

    def __init__(self, first, then):
        self._turns = [first]
        self._then = then

    def __call__(self, *given):
        return (self._turns.pop() if self._turns else self._then)(*given)


def test_a_replaced_worker_can_write_no_result_before_its_successor_has_come_to_the_call(stage, crew):
    stage.pipeline.submit("workspace.exec", {"command": "hold"}, stage.subject)
    claimed = stage.claims().take()
    with ThreadPoolExecutor(1) as thread:
        run = thread.submit(crew.dispatcher._run, claimed)
        wait_for(lambda: crew.sandboxes.runs, "the command")
        stage.register()
        crew.hold.set()
        assert isinstance(run.exception(60), IllegalTransition)
    assert "tool.call.completed" not in stage.types()
