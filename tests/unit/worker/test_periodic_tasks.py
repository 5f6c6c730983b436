from __future__ import annotations

import logging
import threading

import pytest

from codesdk.domain.clock import ManualClock
from codesdk.errors import Fault
from codesdk.worker.lifecycle.periodic_tasks import PeriodicTask, TaskLoop
from stage import wait_for


class Away(Fault):
    code = "AWAY"


@pytest.fixture
def clock():
    return ManualClock()


def duty(work, every_s=1.0, name="look", **more):
    return PeriodicTask(name=name, every_s=every_s, work=work, on_failure="the next look finds it", **more)


def test_each_duty_has_its_own_period(clock):
    done = []
    round_ = TaskLoop("round", clock, [duty(lambda: done.append("often")), duty(lambda: done.append("seldom"), 3.0)])
    for _ in range(7):
        round_.run_due()
        clock.advance(1.0)
    assert (done.count("often"), done.count("seldom")) == (7, 3)


def test_a_turn_tells_when_the_next_is_due(clock):
    round_ = TaskLoop("round", clock, [duty(lambda: None, 5.0), duty(lambda: None, 2.0)])
    assert round_.run_due() == 2.0
    clock.advance(0.5)
    assert round_.run_due() == 1.5


def test_a_duty_that_takes_longer_than_its_period_lets_the_others_have_their_turn(clock):
    done = []
    round_ = TaskLoop("round", clock, [duty(lambda: clock.advance(9.0)), duty(lambda: done.append(1))])
    assert round_.run_due() == 0.0
    assert round_.run_due() == 0.0
    assert len(done) == 2


def test_a_duty_may_wait_for_its_first_period(clock):
    done = []
    round_ = TaskLoop("round", clock, [duty(lambda: done.append(1), 2.0, at_once=False)])
    assert round_.run_due() == 2.0
    clock.advance(2.0)
    round_.run_due()
    assert done == [1]


@pytest.mark.parametrize("error", [Away("The engine is away."), ValueError("a defect")])
def test_a_duty_that_fails_ends_no_other_and_is_done_again(clock, error):
    done = []

    def failing():
        done.append("failed")
        raise error

    round_ = TaskLoop("round", clock, [duty(failing), duty(lambda: done.append("done"))])
    round_.run_due()
    clock.advance(1.0)
    round_.run_due()
    assert done == ["failed", "done"] * 2


def test_a_fault_is_said_once_in_a_row_with_what_it_means_and_so_is_its_end(clock, caplog):
    faults = [Away("The engine is away.")] * 3 + [None] * 2 + [Away("The engine is away.")]
    caplog.set_level(logging.INFO, "codesdk.worker.lifecycle.periodic_tasks")

    def work():
        if fault := faults.pop(0):
            raise fault

    round_ = TaskLoop("round", clock, [duty(work)])
    while faults:
        round_.run_due()
        clock.advance(1.0)
    missed = "the task to look was not done: The engine is away.; the next look finds it"
    assert [record.message for record in caplog.records] == [
        missed,
        "the task to look is done again, after 3 that failed",
        missed,
    ]


def test_a_defect_is_said_with_its_place(clock, caplog):
    TaskLoop("round", clock, [duty(lambda: {}["nothing"])]).run_due()
    (record,) = caplog.records
    assert (record.levelno, record.exc_info[0]) == (logging.ERROR, KeyError)


class Ticking(ManualClock):
    """A clock on which every look takes a second: no test waits for a period."""

    def monotonic(self):
        self.advance(1.0)
        return super().monotonic()


def test_a_round_goes_on_until_it_is_ended():
    done = []
    round_ = TaskLoop("round", Ticking(), [duty(lambda: done.append(1))])
    round_.start()
    wait_for(lambda: len(done) > 3, "several turns")
    assert round_.join(10.0)
    was = len(done)
    assert round_.run_due() >= 0
    assert len(done) == was


def test_a_round_that_hangs_is_waited_for_no_longer_than_told():
    stuck, entered = threading.Event(), threading.Event()

    def hang():
        entered.set()
        stuck.wait(30)

    round_ = TaskLoop("round", Ticking(), [duty(hang)])
    round_.start()
    assert entered.wait(10)
    try:
        assert not round_.join(0.01)
    finally:
        stuck.set()
    assert round_.join(10.0)


def test_a_round_that_never_began_is_over():
    assert TaskLoop("round", ManualClock(), [duty(lambda: None)]).join(0.0)


def test_a_round_without_duties_ends_by_itself():
    round_ = TaskLoop("round", ManualClock(), [])
    round_.start()
    assert round_.join(10.0)
