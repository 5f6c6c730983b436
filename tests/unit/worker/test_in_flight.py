from __future__ import annotations

import pytest

from codesdk.toolcalls.claim import InFlightCalls
from stage import stored_call


@pytest.fixture
def in_flight():
    return InFlightCalls()


@pytest.fixture
def running(stage):
    """A call that runs by its row."""
    outcome = stage.pipeline.submit("workspace.exec", {"command": "x"}, stage.subject)
    stage.claims().take()
    return stored_call(stage.database, outcome.identity.tool_call_id)


def test_a_call_that_nobody_has_is_noted_first_and_found_then(in_flight, running):
    assert in_flight.take_orphaned([running]) == []
    (stray,) = in_flight.take_orphaned([running])
    assert (stray.stored, stray.begun) == (running, False)


def test_a_stray_is_found_once(in_flight, running):
    in_flight.take_orphaned([running])
    in_flight.take_orphaned([running])
    assert in_flight.take_orphaned([running]) == []


def test_a_call_that_is_held_is_no_stray_and_one_that_was_is_known_to_have_begun(in_flight, running):
    in_flight.add(running.identity)
    assert in_flight.take_orphaned([running]) == []
    assert in_flight.take_orphaned([running]) == []
    in_flight.discard(running.identity)
    assert in_flight.take_orphaned([running]) == []
    (stray,) = in_flight.take_orphaned([running])
    assert stray.begun


def test_a_claim_that_was_under_way_when_a_call_was_seen_first_is_waited_for(in_flight, running):
    with in_flight.claiming():
        in_flight.take_orphaned([running])
        assert in_flight.take_orphaned([running]) == []
        in_flight.add(running.identity)
    assert in_flight.take_orphaned([running]) == []


def test_a_claim_that_began_after_a_call_was_seen_cannot_be_its(in_flight, running):
    in_flight.take_orphaned([running])
    with in_flight.claiming():
        assert [stray.stored for stray in in_flight.take_orphaned([running])] == [running]


def test_a_call_that_ended_is_forgotten(in_flight, running):
    in_flight.add(running.identity)
    in_flight.discard(running.identity)
    in_flight.take_orphaned([])
    in_flight.take_orphaned([running])
    assert not in_flight.take_orphaned([running])[0].begun


def test_a_claim_that_was_undone_keeps_no_other_claims_call_from_being_held(in_flight, running):
    with in_flight.claiming() as undone:
        in_flight.take(undone, running)
        with in_flight.claiming() as other:
            in_flight.take(other, running)
            other.is_kept = True
        in_flight.take(undone, None)
    assert in_flight.take_orphaned([running]) == []
    assert in_flight.take_orphaned([running]) == []


def test_a_call_counts_for_its_tenant_until_it_is_discarded(running):
    one = InFlightCalls(1)
    with one.claiming() as claim:
        one.take(claim, running)
        assert one.is_full(running.tenant_id)
        claim.is_kept = True
    assert one.is_full(running.tenant_id)
    one.discard(running.identity)
    one.add(running.identity)
    assert not one.is_full(running.tenant_id), "a recovered call counts for nobody"
