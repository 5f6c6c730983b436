"""Request limits of one session."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from codesdk.domain.clock import ManualClock
from codesdk.mcphost.server import throttle
from codesdk.mcphost.server.throttle import Throttle


def test_past_the_burst_the_rate_holds_and_says_when_to_come_again():
    clock = ManualClock()
    gate = Throttle(clock, at_once=100, per_s=10, burst=3)
    assert [gate.enter("a") for _ in range(3)] == [0, 0, 0]
    assert gate.enter("a") == 0.1
    assert gate.enter("b") == 0
    clock.advance(0.1)
    assert gate.enter("a") == 0
    assert gate.enter("a") > 0


def test_requests_at_once_are_bounded_until_one_is_answered():
    gate = Throttle(ManualClock(), at_once=2, per_s=1000, burst=1000)
    assert [gate.enter("a") for _ in range(3)] == [0, 0, 1]
    gate.leave("a")
    assert gate.enter("a") == 0


def test_who_rests_is_forgotten_and_who_does_not_is_remembered(monkeypatch):
    monkeypatch.setattr(throttle, "_REMEMBERED", 2)
    clock = ManualClock()
    gate = Throttle(clock, at_once=1, per_s=1, burst=1)
    gate.enter("open")
    gate.enter("rests")
    gate.leave("rests")
    clock.advance(5)
    gate.enter("new")
    assert gate.enter("open") == 1
    gate.leave("open")
    gate.leave("new")


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 0.5)), max_size=60))
def test_no_order_of_requests_lets_more_in_than_burst_and_rate(steps):
    clock, let_in, elapsed = ManualClock(), 0, 0.0
    gate = Throttle(clock, at_once=1000, per_s=4, burst=5)
    for asks, pause in steps:
        clock.advance(pause)
        elapsed += pause
        if asks and not gate.enter("a"):
            let_in += 1
    assert let_in <= 5 + elapsed * 4 + 1e-6
