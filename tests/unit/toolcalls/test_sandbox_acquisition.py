"""A call waits for an unavailable engine, and uses another sandbox if its own got no request."""

from __future__ import annotations

import threading

import pytest

from codesdk.sandbox.port.faults import EngineUnavailable, SandboxGone
from codesdk.toolcalls.records.call_record import Queued
from codesdk.toolcalls.run import acquire, error_mapping
from codesdk.tools import acts_only_in_last_request
from stage import POLICY, Room, bundle, said

EXEC = ("workspace.exec", {"command": "x"})
WRITE = ("workspace.write", {"path": "a", "content": "x"})


def away(*, was_sent=True):
    fault = EngineUnavailable("unix:///run/docker.sock", "refused")
    fault.was_sent = was_sent
    return fault


def gone(*, was_sent=True):
    fault = SandboxGone("sbx", "its container is exited")
    fault.was_sent = was_sent
    return fault


class Door:
    """Opens what it is given in turn: sandboxes, or faults."""

    def __init__(self, *behind):
        self.behind = list(behind)
        self.lost = []

    def open(self):
        met = self.behind.pop(0) if len(self.behind) > 1 else self.behind[0]
        if isinstance(met, Exception):
            raise met
        return met

    def lose(self, sandbox):
        self.lost.append(sandbox)
        return True


class Unsent(Room):
    """A sandbox to which nothing can be sent."""

    def __init__(self, fault):
        super().__init__(lambda *_: (_ for _ in ()).throw(fault))
        self.fault = fault
        self.files = self

    def __getattr__(self, _name):
        raise self.fault


@pytest.fixture(autouse=True)
def _hurried(stage, monkeypatch):
    monkeypatch.setattr(acquire, "RETRY_S", 0.001)
    writes = POLICY.replace("{id: writes, effect: ask,", "{id: writes, effect: allow,").replace(
        ", approval: {timeout: 10m}", ""
    )
    stage.bundle = bundle(stage.root / "writes", writes, stage.registry)
    stage.pipeline = stage.pipeline_with(stage.bundle)


def run(stage, door, call=EXEC):
    assert isinstance(stage.pipeline.submit(*call, stage.subject), Queued)
    claimed = stage.claims().take()
    return claimed.stored.identity.tool_call_id, stage.execution().run(claimed, door.open, door.lose)


def doubtful(stage):
    return stage.sql("SELECT count(*) FROM tool_calls WHERE doubtful") == [(1,)]


@pytest.mark.parametrize("call", [EXEC, WRITE], ids=["a command", "a write"])
def test_a_call_whose_engine_is_away_for_a_while_runs_when_it_is_back(stage, call):
    room = Room(said(b"done"))
    _, result = run(stage, Door(away(), away(), away(), room), call)
    assert not result.is_error
    assert stage.events()[-1].payload["attempt"] == 1


def test_one_whose_engine_stays_away_ends_and_may_be_made_again_without_a_question(stage):
    _, result = run(stage, Door(away()))
    assert (result.code, doubtful(stage)) == ("ENGINE_UNAVAILABLE", False)
    assert isinstance(stage.pipeline.submit(*EXEC, stage.subject), Queued)


def test_an_engine_that_hangs_is_not_waited_for_longer_than_one_that_refuses(stage):
    tries = []

    class Hanging(Door):
        def open(self):
            tries.append(1)
            stage.clock.advance(60.0)
            raise away()

    _, result = run(stage, Hanging())
    assert (result.code, len(tries)) == ("ENGINE_UNAVAILABLE", 1)


def test_one_that_is_cancelled_while_it_waits_does_not_begin(stage):
    class Cancelled(Door):
        def open(self):
            with stage.database.read() as connection:
                ((call,),) = connection.exec_driver_sql("SELECT id FROM tool_calls").all()
            stage.cancel(call, "enough")
            raise away()

    _, result = run(stage, Cancelled())
    assert (result.code, result.text) == ("NOT_BEGUN", "This call was not begun: meanwhile it was cancelled.")
    assert not doubtful(stage)


def test_an_engine_that_is_away_for_a_moment_costs_the_other_calls_of_the_sandbox_nothing(stage):
    asked = []

    def play(*given):
        asked.append(1)
        if len(asked) == 1:
            raise away(was_sent=False)
        return said(b"x")(*given)

    door = Door(Room(play))
    _, result = run(stage, door)
    assert not result.is_error
    assert (len(asked), door.lost) == (2, [])


def test_one_that_is_cancelled_while_its_sandbox_is_opened_does_not_begin(stage):
    room = Room()

    class Slow(Door):
        def open(self):
            with stage.database.read() as connection:
                ((call,),) = connection.exec_driver_sql("SELECT id FROM tool_calls").all()
            assert stage.cancel(call, "enough")
            stage.clock.advance(0.3)
            return room

    _, result = run(stage, Slow())
    assert (result.code, result.text) == ("NOT_BEGUN", "This call was not begun: meanwhile it was cancelled.")
    assert room.requests == []
    assert not doubtful(stage)


def test_one_that_waits_is_the_next_workers_once_this_one_lets_go(stage):
    assert isinstance(stage.pipeline.submit(*EXEC, stage.subject), Queued)
    runs, claimed = stage.execution(), stage.claims().take()

    def opens():
        runs.abandon()
        raise away()

    before = stage.events()
    with pytest.raises(EngineUnavailable):
        runs.run(claimed, opens)
    assert stage.events() == before


@pytest.mark.parametrize("call", [EXEC, WRITE], ids=["a command", "a write"])
@pytest.mark.parametrize("fault", [away, gone])
def test_what_was_never_sent_runs_in_the_sandbox_that_comes_next_as_the_same_attempt(stage, call, fault):
    first, second = Unsent(fault(was_sent=False)), Room(said(b"done"))
    door = Door(first, second)
    _, result = run(stage, door, call)
    assert not result.is_error
    assert door.lost == ([first] if fault is gone else []), "where the engine was away, others' calls may run in it"
    assert [event.payload["attempt"] for event in stage.events() if event.type == "tool.call.completed"] == [1]


def test_what_no_sandbox_takes_ends_without_doubt(stage):
    door = Door(Unsent(gone(was_sent=False)))
    _, result = run(stage, door, WRITE)
    assert (result.code, doubtful(stage), len(door.lost)) == ("SANDBOX_GONE", False, acquire.MAX_SANDBOXES)


@pytest.mark.parametrize("fault", [away, gone])
def test_what_may_have_been_sent_is_lost_and_asked_about(stage, fault):
    door = Door(Unsent(fault()), Room(said(b"done")))
    _, result = run(stage, door, WRITE)
    assert (result.code, doubtful(stage)) == ("WORKER_LOST", True)
    assert len(door.behind) == 1, "it was opened once"


def test_that_the_last_thing_was_not_sent_is_no_word_about_a_tool_that_asks_for_more_than_one(stage):
    """A signal is sent, and then its process is looked at."""
    tree = {"path": ".", "upload": {"sha256": "sha256:0", "bytes": 1, "tree": True}}
    is_effect_free = [
        acts_only_in_last_request(stage.registry.resolve(name), given)
        for name, given in (("process.signal", {}), EXEC, WRITE, (WRITE[0], tree))
    ]
    assert is_effect_free == [False, True, True, False]
    room = Unsent(gone(was_sent=False))
    ended = acquire.SandboxAcquisition(
        lambda: room,
        lambda _: pytest.fail("it is not given up"),
        clock=stage.clock,
        abandoned=threading.Event(),
        blocked_by=lambda: "",
    )
    with pytest.raises(SandboxGone):
        ended.run(lambda sandbox: sandbox.files.stat("."), is_effect_free=False)
    assert ended.sandbox is room


def test_the_end_of_what_did_not_begin_names_no_sandbox_that_failed():
    assert error_mapping.fault_result(acquire.NotStarted.because("it was cancelled")).text.startswith(
        "This call was not begun"
    )
