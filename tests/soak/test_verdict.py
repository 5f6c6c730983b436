"""The chaos run's verdict: an attempt that ran twice is detected, even if another one never ran."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # tests/ is no package

from clients import End
from verdict import Attempt, Record, Run, Told, runs_in

from codesdk.domain.clock import ManualClock

FIRST = Attempt("call_1", "m1-1", "one", 100.0, 110.0, "WORKER_LOST")
NEXT = Attempt("call_1", "m1-1", "one", 110.0, 140.0, "WORKER_LOST")


class Fault:
    """A death of something at a time."""

    def __init__(self, kind, at, host=None):
        self.kind, self.at, self.host = kind, at, host


@pytest.fixture
def record(stage):
    return Record(stage.database, ManualClock())


def test_a_line_tells_each_of_its_runs_apart_and_one_that_is_cut_short_is_none():
    said = "m1-1 1764368000.123456789\nm1-2 1764368001.000000001\nm1-3 17643680"
    assert runs_in(said + "\n" + said) == {Run("m1-1", 1764368000.123456789), Run("m1-2", 1764368001.000000001)}


def test_two_attempts_that_ran_once_each_or_not_at_all_are_in_order(record):
    record.attempts = [FIRST, NEXT]
    assert record.ran_too_often([Run("m1-1", 100.1), Run("m1-1", 115.0)]) == []
    assert record.ran_too_often([Run("m1-1", 100.1)]) == []
    assert record.ran_too_often([]) == []


def test_an_attempt_that_ran_twice_is_not_hidden_by_another_that_never_ran(record):
    record.attempts = [FIRST, NEXT]
    (said,) = record.ran_too_often([Run("m1-1", 100.1), Run("m1-1", 104.0)])
    assert said.startswith("m1-1: 1 of ")


def test_a_run_of_no_attempt_is_one_too_many(record):
    record.attempts = [FIRST]
    assert record.ran_too_often([Run("m1-1", 200.0)])
    assert record.ran_too_often([Run("m9-9", 100.1)])


def test_what_ended_well_has_run(record):
    record.attempts = [FIRST, NEXT._replace(code="ok")]
    assert record.ran_too_often([Run("m1-1", 115.0)]) == []
    (said,) = record.ran_too_often([Run("m1-1", 100.1)])
    assert "has none" in said


def test_what_a_client_was_told_is_held_against_the_record(record):
    record._ends = {"call_1": Told("ok", "said\n")}
    right, other, wrong = (End("call_1", "ok", "said\n"), End("call_1", "ok", "x"), End("call_1", "WORKER_LOST", ""))
    assert record.told_otherwise([right, End("", "SESSION_CLOSED", "")]) == []
    assert len(record.told_otherwise([right, other, wrong, End("call_2", "ok", "said\n")])) == 3


def test_a_call_whose_second_attempt_ended_well_was_recovered_from_what_met_the_first(record):
    record.attempts = [FIRST, NEXT._replace(code="ok"), FIRST._replace(call="call_2", host="own")]
    faults = [Fault("worker killed", 105.0, "one"), Fault("engine killed", 106.0, "own"), Fault("API killed", 300.0)]
    told = record.from_death_to_end(faults)
    assert told["worker killed"] == {"calls": 1, "recovered": 1, "median_s": 35.0, "worst_s": 35.0}
    assert told["engine killed"]["recovered"] == 0
    steady = {"calls": 1, "ended_well": 1, "met_a_death": 1, "recovered": 1}
    assert record.where_engines_live(faults) == steady
