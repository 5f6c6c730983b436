"""A recorded run of the pipeline, replayed: with fixed clock, ids and sandbox it writes the same bytes.

The recording is also the fixture of schema version 1, which later versions must still read. Runs of agent runtimes will
be added here with their decoders.
"""

from __future__ import annotations

import json

import pytest

from codesdk.approvals import Verdict
from codesdk.domain.invariants import first_violation
from codesdk.domain.payloads import read_payload
from codesdk.domain.upcasting import read_event
from codesdk.transcript import fold, markdown_page
from stage import REPOSITORY, Room, said

RECORDED = REPOSITORY / "tests" / "fixtures" / "runs" / "schema-1.jsonl"


def play(stage):
    """Calls that run, fail, print much, are approved, rejected, denied and cancelled; then the session closes."""

    def run(*output, exit_code=0):
        stage.clock.advance(1.5)
        stage.execution().run(stage.claims().take(), lambda: Room(said(*output, exit_code=exit_code)))

    def vote(verdict, comment):
        (asked,) = stage.pending()
        by = stage.principal
        stage.pipeline.vote(by.tenant_id, asked.id, verdict, digest=asked.digest, by=by.id, comment=comment)

    submit = stage.pipeline.submit
    submit("workspace.exec", {"command": "make"}, stage.subject, runtime_tool_call_id="toolu_1")
    run(b"caf\xc3\xa9\n", ("stderr", b"\xff oh\n"), exit_code=2)
    submit("workspace.exec", {"command": "yes"}, stage.subject)
    run(b"y\n" * 30_000)
    submit("workspace.write", {"path": "a.txt", "content": "b" * 9000}, stage.subject)
    vote(Verdict.APPROVE, "fine")
    run()
    submit("workspace.write", {"path": "a.txt", "content": "c"}, stage.subject)
    vote(Verdict.REJECT, None)
    submit("patch.apply", {"patch": "x"}, stage.subject)
    asked = submit("workspace.write", {"path": "a.txt", "content": "d"}, stage.subject)
    tenant, session = stage.principal.tenant_id, stage.subject.session_id
    stage.pipeline.cancel(tenant, session, asked.identity.tool_call_id, "not needed any more")
    stage.sessions.close(tenant, session)


def lines(events):
    """One line an event. An approval's expiry is on the database's clock, which no test sets; its digest covers manifests."""
    shown = [event.model_dump(mode="json", exclude_none=True) for event in events]
    for event in shown:
        if "expires_at" in event["payload"]:
            event["payload"] |= {"expires_at": 0.0, "digest": "sha256:" + "0" * 64}
    return "".join(json.dumps(event, ensure_ascii=False) + "\n" for event in shown)


def recorded():
    return [read_event(json.loads(line)) for line in RECORDED.read_text().splitlines()]


def test_a_recorded_run_replays_to_the_same_bytes(stage):
    play(stage)
    assert lines(stage.events()) == RECORDED.read_text()


def test_events_of_version_1_are_read_and_checked():
    events = recorded()
    assert first_violation(events) is None
    assert all(read_payload(event) is not None for event in events)
    assert {json.loads(line)["schema_version"] for line in RECORDED.read_text().splitlines()} == {1}


def test_the_transcript_of_the_recording_is_the_same_every_time(stage):
    play(stage)
    told = fold(recorded())
    assert told == fold(recorded())
    assert markdown_page.render(told) == markdown_page.render(fold(stage.events()))
    states = ["completed", "completed", "completed", "denied", "denied", "denied"]
    assert [call.state for call in told.calls] == states
    assert len(told.messages) == 2 * len(told.calls)


@pytest.mark.parametrize("cut", [1, 5, 12])
def test_any_beginning_of_the_recording_is_a_lawful_log(cut):
    assert first_violation(recorded()[:cut]) is None
