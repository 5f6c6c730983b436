"""The circuit breaker pauses after failures."""

from __future__ import annotations

import pytest

from codesdk.domain.circuit_breaker import CircuitBreaker
from codesdk.domain.clock import ManualClock


def test_after_a_try_that_failed_none_is_made_until_the_pause_is_over():
    clock, tries = ManualClock(), []
    pause = CircuitBreaker(1.0, clock)

    def work():
        tries.append(clock.monotonic())
        if len(tries) == 1:
            raise ConnectionError

    with pytest.raises(ConnectionError):
        pause.attempt(work)
    assert not pause.attempt(work)
    clock.advance(1.0)
    assert [pause.attempt(work), pause.attempt(work), len(tries)] == [True, True, 3]
