"""A coalesced job that has not begun serves all requests that arrive meanwhile."""

from __future__ import annotations

import pytest

from codesdk.worker.calls.dispatcher import CoalescedJob


class Pool:
    """Runs what it is handed when it is told to."""

    def __init__(self):
        self.waiting = []
        self.shut = False

    def hand(self, work):
        if self.shut:
            raise RuntimeError("shut")
        self.waiting.append(work)

    def run_one(self):
        self.waiting.pop(0)()


@pytest.fixture
def pool():
    return Pool()


@pytest.fixture
def done():
    return []


def test_a_thousand_that_ask_before_it_begins_have_one_look(pool, done):
    errand = CoalescedJob(pool.hand, lambda: done.append("looked"))
    for _ in range(1000):
        errand.ask()
    assert len(pool.waiting) == 1
    pool.run_one()
    assert done == ["looked"]


def test_who_asks_while_it_looks_has_another(pool):
    asked = []

    def look():
        if not asked:
            asked.append(True)
            errand.ask()

    errand = CoalescedJob(pool.hand, look)
    errand.ask()
    pool.run_one()
    assert len(pool.waiting) == 1


def test_one_that_failed_is_done_again_for_the_next_who_asks(pool, done):
    def fail():
        done.append("tried")
        raise OSError("away")

    errand = CoalescedJob(pool.hand, fail)
    for _ in range(2):
        errand.ask()
        with pytest.raises(OSError, match="away"):
            pool.run_one()
    assert done == ["tried", "tried"]


def test_one_that_nobody_could_take_is_not_counted_as_waiting(pool, done):
    errand = CoalescedJob(pool.hand, lambda: done.append("looked"))
    pool.shut = True
    with pytest.raises(RuntimeError):
        errand.ask()
    pool.shut = False
    errand.ask()
    pool.run_one()
    assert done == ["looked"]


def test_as_many_wait_as_there_are_threads_for_them(pool):
    errand = CoalescedJob(pool.hand, lambda: None, most=3)
    for _ in range(10):
        errand.ask()
    assert len(pool.waiting) == 3
