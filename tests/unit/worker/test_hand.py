from __future__ import annotations

import pytest

from codesdk.worker.calls.in_flight import InFlightCalls
from stage import stored_call


@pytest.fixture
def hand():
    return InFlightCalls()


@pytest.fixture
def running(stage):
    """A call that runs by its row."""
    outcome = stage.pipeline.submit("workspace.exec", {"command": "x"}, stage.subject)
    stage.claims().take()
    return stored_call(stage.database, outcome.identity.tool_call_id)


def test_a_call_that_nobody_has_is_noted_first_and_found_then(hand, running):
    assert hand.strays([running]) == []
    (stray,) = hand.strays([running])
    assert (stray.stored, stray.begun) == (running, False)


def test_a_stray_is_found_once(hand, running):
    hand.strays([running])
    hand.strays([running])
    assert hand.strays([running]) == []


def test_a_call_that_is_held_is_no_stray_and_one_that_was_is_known_to_have_begun(hand, running):
    hand.take(running.identity)
    assert hand.strays([running]) == []
    assert hand.strays([running]) == []
    hand.leave(running.identity)
    assert hand.strays([running]) == []
    (stray,) = hand.strays([running])
    assert stray.begun


def test_a_claim_that_was_under_way_when_a_call_was_seen_first_is_waited_for(hand, running):
    with hand.claiming():
        hand.strays([running])
        assert hand.strays([running]) == []
        hand.take(running.identity)
    assert hand.strays([running]) == []


def test_a_claim_that_began_after_a_call_was_seen_cannot_be_its(hand, running):
    hand.strays([running])
    with hand.claiming():
        assert [stray.stored for stray in hand.strays([running])] == [running]


def test_a_call_that_ended_is_forgotten(hand, running):
    hand.take(running.identity)
    hand.leave(running.identity)
    hand.strays([])
    hand.strays([running])
    assert not hand.strays([running])[0].begun
