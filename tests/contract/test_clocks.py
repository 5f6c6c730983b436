"""The contract of the clock port, for every implementation."""

from __future__ import annotations

from datetime import UTC, timedelta

import pytest

from codesdk.domain.clock import ManualClock, SystemClock, to_rfc3339


@pytest.mark.parametrize("clock", [ManualClock(), SystemClock()], ids=["fake", "real"])
def test_now_is_aware_and_in_utc(clock):
    assert clock.now().tzinfo is not None
    assert clock.now().utcoffset() == timedelta(0)


@pytest.mark.parametrize("clock", [ManualClock(), SystemClock()], ids=["fake", "real"])
def test_monotonic_never_goes_back(clock):
    readings = [clock.monotonic() for _ in range(100)]
    assert readings == sorted(readings)


def test_the_manual_clock_moves_both_hands_when_told():
    clock = ManualClock()
    before = clock.now(), clock.monotonic()
    clock.advance(1.5)
    assert (clock.now() - before[0], clock.monotonic() - before[1]) == (timedelta(seconds=1.5), 1.5)


def test_wire_time_has_milliseconds_and_sorts():
    clock = ManualClock()
    times = []
    for _ in range(5):
        times.append(to_rfc3339(clock.now()))
        clock.advance(0.999)
    assert times[0] == "2026-01-01T00:00:00.000Z"
    assert times == sorted(times)
    assert {len(time) for time in times} == {24}
    assert to_rfc3339(clock.now().astimezone(UTC)) == to_rfc3339(clock.now())
