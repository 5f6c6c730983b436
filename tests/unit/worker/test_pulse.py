"""A worker says that it lives, and hears when its host is not its own any more."""

from __future__ import annotations

import threading

import pytest

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


def test_a_call_that_was_claimed_before_the_worker_froze_does_not_start_when_the_host_is_gone(stage, crew):
    pulse = Pulse(stage.writer, stage.clock, stage.host, 30.0)
    crew.rooms._confirm = pulse.confirm
    call = stage.pipeline.submit("workspace.exec", {"command": "x"}, stage.subject)
    claimed = stage.claims().take()
    stage.register()
    stage.clock.advance(16.0)
    crew.dispatcher._run(claimed)
    assert crew.sandboxes.runs == []
    assert stage.find(call.identity.tool_call_id).result.code == "HOST_GONE"
