"""Progress messages to a caller."""

from __future__ import annotations

import asyncio

from codesdk.domain.calls import CallIdentity
from codesdk.domain.clock import ManualClock
from codesdk.domain.events import Event, EventType, RuntimeInfo, Trace
from codesdk.domain.ids import SessionId, ToolCallId
from codesdk.mcphost.tool_calls.progress import CallPhase, CallProgress
from codesdk.toolcalls.records.call_record import Queued, Waiting

IDENTITY = CallIdentity(tool_call_id=ToolCallId("call_1"), input_hash="sha256:0")
WAITING = Waiting(identity=IDENTITY, approval_id="apr_1", reason="Why.", expires_at=1.0)


def event(seq, kind, **payload):
    return Event(
        seq=seq,
        time="2026-01-01T00:00:00.000Z",
        type=kind,
        trace=Trace(session_id=SessionId("ses_1")),
        runtime=RuntimeInfo(name="test"),
        payload=payload,
    )


def seen(journey, *events):
    async def see():
        for one in events:
            await journey.see(one)

    asyncio.run(see())
    return journey


def test_a_call_that_waits_names_its_approval_then_its_turn_then_its_run():
    clock = ManualClock()
    journey = CallProgress(WAITING, clock)
    assert (journey.phase, journey.take_message()) == (
        CallPhase.DECISION,
        "waiting for a person to approve it (apr_1: Why. Open until 00:00:01 UTC)",
    )
    clock.advance(5)
    seen(journey, event(4, EventType.APPROVAL_DECIDED))
    assert (journey.phase, journey.since, journey.take_message()) == (CallPhase.WORKER, 5.0, "waiting for its turn")
    clock.advance(2)
    seen(journey, event(5, EventType.CALL_APPROVED), event(6, EventType.CALL_STARTED))
    assert (journey.phase, journey.since, journey.after_seq) == (CallPhase.RESULT, 7.0, 6)
    assert (journey.elapsed(), journey.take_message()) == (7.0, "running")


def running(*deltas):
    events = [event(seq, EventType.OUTPUT_DELTA, delta=text) for seq, text in enumerate(deltas, 2)]
    return seen(CallProgress(Queued(identity=IDENTITY), ManualClock()), event(1, EventType.CALL_STARTED), *events)


def test_a_message_has_the_lines_since_the_one_before_each_once():
    journey = running("one\n", "two\n\nthree\n")
    assert journey.take_message() == "running: one\ntwo\nthree"
    assert seen(journey, event(9, EventType.OUTPUT_DELTA, delta="four\n")).take_message() == "running: four"


def test_a_message_without_new_output_names_the_last_line():
    journey = running("one\ntwo\n")
    journey.take_message()
    assert seen(journey, event(9, EventType.OUTPUT_DELTA, delta="\n \n")).take_message() == "running; last output: two"


def test_a_message_has_the_newest_lines_cut_and_counts_those_left_out():
    lines = [f"{number} " + "x" * 500 for number in range(50)]
    shown = running(*("\n".join(lines[at : at + 10]) + "\n" for at in range(0, 50, 10))).take_message().splitlines()
    assert shown == ["running: [… 30 lines left out …]", *(line[:200] for line in lines[30:])]


def test_a_call_that_is_joined_while_it_runs_shows_what_it_prints():
    joined = CallProgress(Queued(identity=IDENTITY), ManualClock())
    assert seen(joined, event(8, EventType.OUTPUT_DELTA, delta="half\n")).take_message() == "running: half"


def test_entering_the_same_phase_twice_keeps_its_start():
    clock = ManualClock()
    journey = CallProgress(Queued(identity=IDENTITY), clock)
    clock.advance(3)
    journey.enter(CallPhase.WORKER)
    assert journey.since == 0.0


def test_a_call_that_is_tried_in_a_copy_says_so_and_then_that_a_person_must_decide():
    tried = WAITING.model_copy(update={"reason": "It is tried first.", "is_being_previewed": True})
    journey = seen(CallProgress(tried, ManualClock()), event(1, EventType.APPROVAL_PREVIEW_STARTED))
    assert journey.take_message().startswith(
        "being tried in a copy of the workspace, before a person is asked (apr_1: "
    )
    asked = {"approval_id": "apr_1", "reason": "Why.", "expires_at": 61.0}
    seen(journey, event(2, EventType.APPROVAL_PREVIEWED), event(3, EventType.APPROVAL_REQUESTED, **asked))
    told = "tried in a copy of the workspace; waiting for a person to approve it (apr_1: Why. Open until 00:01:01 UTC)"
    assert journey.take_message() == told
