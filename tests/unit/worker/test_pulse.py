"""A worker says that it lives, and hears when its host is not its own any more."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from codesdk.domain.calls import IllegalTransition
from codesdk.sandbox import store
from codesdk.sandbox.port import Gone
from codesdk.sandbox.store import SandboxState
from codesdk.storage.faults import StorageUnavailable
from codesdk.worker.pulse import HostGone, Pulse
from stage import wait_for


@pytest.fixture
def pulse(stage):
    made = Pulse(stage.writer, stage.clock, stage.host, 30.0)
    yield made
    made.stop()


def beats(stage):
    return stage.sql("SELECT heartbeat FROM hosts")[0].heartbeat


def test_it_beats_on_its_own_thread(stage):
    pulse = Pulse(stage.writer, stage.clock, stage.host, 0.06)
    pulse.start()
    wait_for(lambda: beats(stage) > 2, "heartbeats")
    pulse.stop()


def test_who_is_told_hears_that_a_newer_worker_has_the_host(stage):
    pulse, told = Pulse(stage.writer, stage.clock, stage.host, 0.06), threading.Event()
    pulse.on_end(told.set)
    stage.register()
    pulse.start()
    assert told.wait(10)
    with pytest.raises(HostGone):
        pulse.check()
    pulse.stop()


def test_a_young_beat_is_not_asked_about_again(stage, pulse):
    stage.register()
    stage.clock.advance(14.0)
    pulse.confirm()


def test_who_could_not_beat_for_half_the_lease_asks_before_anything_starts(stage, pulse):
    stage.clock.advance(16.0)
    pulse.confirm()
    assert beats(stage) == 1
    pulse.confirm()
    assert beats(stage) == 1
    stage.sql("UPDATE hosts SET state = 'lost', generation = generation + 1")
    stage.clock.advance(16.0)
    with pytest.raises(HostGone):
        pulse.confirm()
    assert pulse.is_over


def test_where_nobody_can_say_nothing_starts(stage, pulse, monkeypatch):
    def away(_work):
        raise StorageUnavailable("away")

    monkeypatch.setattr(stage.writer, "run", away)
    stage.clock.advance(16.0)
    with pytest.raises(StorageUnavailable):
        pulse.confirm()
    pulse.leave()  # says so in its log, and lets the worker stop
    assert not pulse.is_over


def test_leaving_is_in_the_row(stage, pulse):
    pulse.leave()
    assert stage.sql("SELECT left_at FROM hosts")[0].left_at is not None


@pytest.fixture
def thawed(stage, crew):
    """A worker that was frozen for longer than its lease; another has registered meanwhile."""
    pulse = Pulse(stage.writer, stage.clock, stage.host, 30.0)
    crew.rooms._confirm = pulse.confirm
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
        thawed.rooms.ready(stage.session.id)
    thawed.rooms.reconcile()
    assert thawed.sandboxes.living == ()


def test_it_stops_none_and_removes_none_that_its_successor_has_brought_back(stage, thawed, monkeypatch):
    thawed.successor.rooms.ready(stage.session.id)
    with stage.database.read() as connection:
        row = store.of_session(connection, stage.session.id)
    for state in (SandboxState.HALTING, SandboxState.CLOSING):  # as it read them before it froze
        with pytest.raises(HostGone):
            thawed.rooms._end(row.model_copy(update={"state": state}))
    assert thawed.sandboxes.living == (row.id,)
    assert thawed.successor.rooms.ready(stage.session.id).files.list(".").entries == ()


def test_nor_one_that_it_did_not_find_since_it_was_frozen_while_it_looked(stage, crew, monkeypatch):
    pulse = Pulse(stage.writer, stage.clock, stage.host, 30.0)
    crew.rooms._confirm = crew.rooms._finding._confirm = pulse.confirm
    crew.rooms.ready(stage.session.id)
    crew.rooms.forget(stage.session.id)
    successor = crew.next()

    def freezes(owner, _generation):
        stage.clock.advance(16.0)
        successor.rooms.ready(stage.session.id)
        return Gone(owner=owner, reason="it did not answer in time")

    monkeypatch.setattr(crew.rooms._finding._sandboxes, "reattach", Once(freezes, crew.sandboxes.reattach))
    with pytest.raises(HostGone):
        crew.rooms.ready(stage.session.id)
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
