from __future__ import annotations

import pytest

from codesdk.approvals import ApprovalConflict, ApprovalState, Verdict
from codesdk.domain.calls import DenialCode
from codesdk.domain.canonical import NotCanonical
from codesdk.domain.ids import ToolCallId
from codesdk.registry import InvalidInput, UnknownTool
from codesdk.toolcalls.pipeline import SMALL_INPUT
from codesdk.toolcalls.records.call_record import ClaimedCall, Denied, Queued, Waiting
from stage import bundle

WRITE = ("workspace.write", {"path": "a", "content": "b"})
READ = ("workspace.read", {"path": "a"})


def submit(stage, call=WRITE, subject=None):
    return stage.pipeline.submit(*call, subject or stage.subject)


def vote(stage, waiting, verdict=Verdict.APPROVE, comment=None):
    asked = stage.approval_service.find(stage.principal.tenant_id, waiting.approval_id)
    return stage.pipeline.vote(
        asked.tenant_id, asked.id, verdict, digest=asked.digest, by=stage.principal.id, comment=comment
    )


def overdue(stage):
    stage.sql("UPDATE approvals SET expires_at = 1 WHERE state = 'pending'")


def test_a_denied_call_is_requested_evaluated_and_denied(stage):
    outcome = submit(stage, ("patch.apply", {"patch": "x"}))
    assert isinstance(outcome, Denied)
    assert (outcome.code, outcome.message, outcome.rules) == (DenialCode.POLICY, "No patches here.", ("patches",))
    assert stage.types() == ["tool.call.requested", "tool.call.policy_evaluated", "tool.call.denied"]
    assert stage.claims().take() is None


def test_an_allowed_call_is_requested_evaluated_and_then_approved_and_started_by_the_claim(stage):
    assert isinstance(submit(stage, READ), Queued)
    assert stage.types() == ["tool.call.requested", "tool.call.policy_evaluated"]
    assert isinstance(stage.claims().take(), ClaimedCall)
    assert stage.types()[2:] == ["tool.call.approved", "tool.call.started"]


def test_an_asked_call_waits_and_the_persons_voice_comes_before_their_decision(stage):
    waiting = submit(stage)
    assert isinstance(waiting, Waiting)
    assert stage.types() == ["tool.call.requested", "tool.call.policy_evaluated", "approval.requested"]
    assert stage.claims().take() is None
    vote(stage, waiting)
    assert stage.types()[3:] == ["tool.call.policy_evaluated", "approval.decided"]
    stage.claims().take()
    assert stage.types()[5:] == ["tool.call.approved", "tool.call.started"]


def test_a_rejected_call_is_denied_with_the_persons_words(stage):
    waiting = submit(stage)
    vote(stage, waiting, Verdict.REJECT, "use the other file")
    assert stage.types()[3:] == ["tool.call.policy_evaluated", "approval.decided", "tool.call.denied"]
    outcome = stage.find(waiting.identity.tool_call_id)
    assert isinstance(outcome, Denied)
    assert outcome.code is DenialCode.REJECTED
    assert "use the other file" in outcome.message


def test_every_event_of_a_call_names_it_whole(stage):
    waiting = submit(stage)
    vote(stage, waiting)
    stage.claims().take()
    for event in stage.events(after=1):
        assert event.payload["tool_call_id"] == waiting.identity.tool_call_id
        if event.type.startswith("tool."):
            assert event.payload["input_hash"] == waiting.identity.input_hash
            assert event.payload["attempt"] == 1
        assert event.trace.session_id == stage.session.id


def test_the_snapshot_of_the_decision_has_every_voice(stage):
    vote(stage, submit(stage))
    stage.claims().take()
    approved = next(event for event in stage.events() if event.type == "tool.call.approved")
    assert approved.payload["policy_snapshot"] == {
        "permission_mode": "auto",
        "decision": "allow",
        "sources": [{"source": "codesdk", "result": "ask", "rule": "writes"}, {"source": "user", "result": "allow"}],
    }


@pytest.mark.parametrize(
    ("call", "fault"),
    [
        (("workspace.nothing", {}), UnknownTool),
        (("workspace.read", {}), InvalidInput),
        (("workspace.read", {"path": "a", "other": 1}), InvalidInput),
        (("workspace.read", {"path": "\ud800"}), (InvalidInput, NotCanonical)),
        (("workspace.read", {"path": "a", "limit": 2**60}), (InvalidInput, NotCanonical)),
        (("workspace.read", {"path": "a", "offset": float("nan")}), (InvalidInput, NotCanonical)),
    ],
)
def test_what_is_no_call_is_refused_before_anything_is_recorded(stage, call, fault):
    with pytest.raises(fault):
        submit(stage, call)
    assert stage.types() == []


def test_a_repeated_call_joins_the_one_that_waits(stage):
    first = submit(stage)
    before = stage.events()
    assert submit(stage, ("workspace.write", {"content": "b", "path": "a"})) == first
    assert stage.events() == before
    assert len(stage.pending()) == 1


def test_another_input_another_tool_and_another_session_do_not_join(stage):
    other = stage.open_session()
    first = submit(stage)
    for outcome in (submit(stage, ("workspace.write", {"path": "a", "content": "c"})), submit(stage, subject=other)):
        assert outcome.identity.tool_call_id != first.identity.tool_call_id
    assert len(stage.pending()) == 3


def test_a_call_that_was_decided_is_not_joined(stage):
    first = submit(stage)
    vote(stage, first, Verdict.REJECT)
    assert submit(stage).identity != first.identity


def test_a_question_that_nobody_answered_in_time_is_not_joined(stage):
    first = submit(stage)
    overdue(stage)
    second = submit(stage)
    assert second.identity != first.identity
    assert submit(stage) == second


def test_an_expired_call_hears_that_it_was_not_rejected(stage):
    waiting = submit(stage)
    overdue(stage)
    assert stage.expire_overdue() == 1
    outcome = stage.find(waiting.identity.tool_call_id)
    assert isinstance(outcome, Denied)
    assert outcome.code is DenialCode.EXPIRED
    assert "not rejected" in outcome.message
    assert stage.types()[-1] == "tool.call.denied"
    assert stage.expire_overdue() == 0


def test_a_call_whose_question_expired_unswept_still_waits_for_its_denial(stage):
    waiting = submit(stage)
    overdue(stage)
    assert isinstance(stage.find(waiting.identity.tool_call_id), Waiting)


def test_a_call_is_found_waiting_among_hundreds(stage):
    first = submit(stage)
    for number in range(201):
        submit(stage, ("workspace.write", {"path": "a", "content": str(number)}))
    assert isinstance(stage.find(first.identity.tool_call_id), Waiting)


def test_one_broken_question_does_not_keep_the_others_from_expiring(stage):
    # Seen in the first version: a session closed with an open question blocked every later expiry.
    broken, good = submit(stage), submit(stage, ("workspace.write", {"path": "z", "content": "z"}))
    stage.sql("UPDATE tool_calls SET state = 'denied' WHERE id = :id", id=broken.identity.tool_call_id)
    overdue(stage)
    assert stage.expire_overdue() == 1
    assert isinstance(stage.find(good.identity.tool_call_id), Denied)


def test_a_closed_sessions_call_is_denied_without_a_trace(stage):
    subject = stage.subject
    stage.sessions.close(stage.principal.tenant_id, stage.session.id)
    before = stage.events()
    outcome = submit(stage, subject=subject)
    assert isinstance(outcome, Denied)
    assert outcome.code is DenialCode.SESSION_CLOSED
    assert stage.events() == before


def test_cancelling_a_waiting_call_denies_it_and_its_question(stage):
    waiting = submit(stage)
    assert stage.cancel(waiting.identity.tool_call_id, "the agent gave up")
    assert stage.find(waiting.identity.tool_call_id).code is DenialCode.CANCELLED
    with pytest.raises(ApprovalConflict, match="cancelled"):
        vote(stage, waiting)


def test_cancelling_a_queued_call_denies_it(stage):
    queued = submit(stage, READ)
    assert stage.cancel(queued.identity.tool_call_id, "no")
    assert stage.claims().take() is None
    assert stage.types()[-1] == "tool.call.denied"


def test_cancelling_an_approved_queued_call_ends_its_approval(stage):
    waiting = submit(stage)
    vote(stage, waiting)
    stage.cancel(waiting.identity.tool_call_id, "no")
    found = stage.approval_service.find(stage.principal.tenant_id, waiting.approval_id)
    assert found.state is ApprovalState.CANCELLED


def test_cancelling_a_running_call_leaves_a_wish_for_its_worker(stage):
    queued = submit(stage, READ)
    stage.claims().take()
    woken = []
    stage.wakeups.bind(stage.host.id, woken.append)
    before = stage.events()
    assert stage.cancel(queued.identity.tool_call_id, "no")
    stage.writer.close()
    assert woken[-1] == stage.session.id  # a session's wake-up: cancels do not stand in the queue of calls
    assert stage.events() == before
    assert isinstance(stage.find(queued.identity.tool_call_id), Queued)


@pytest.mark.parametrize("call", [READ, ("patch.apply", {"patch": "x"})])
def test_cancelling_what_ended_or_never_was_changes_nothing(stage, call):
    outcome = submit(stage, call)
    if isinstance(outcome, Queued):
        stage.cancel(outcome.identity.tool_call_id, "first")
    before = stage.events()
    assert not stage.cancel(outcome.identity.tool_call_id, "second")
    assert not stage.cancel(ToolCallId("call_none"), "none")
    assert stage.events() == before


def test_a_large_input_stands_in_the_log_as_an_artifact(stage):
    content = "x" * SMALL_INPUT
    submit(stage, ("workspace.write", {"path": "a", "content": content}))
    requested = stage.events(after=1)[0].payload
    assert "input" not in requested
    artifact = stage.artifacts.find(stage.principal.tenant_id, requested["input_ref"]["artifact_id"])
    assert content.encode() in stage.artifacts.read(artifact)
    assert artifact.content_hash == requested["input_hash"] == requested["input_ref"]["content_hash"]


def test_the_host_is_woken_after_the_commit(stage):
    woken = []
    stage.wakeups.bind(stage.host.id, lambda subject: woken.append((subject, stage.types())))
    outcome = submit(stage, READ)
    stage.writer.close()
    # The stage's own session may be announced late.
    ours = [(subject, seen) for subject, seen in woken if subject == outcome.identity.tool_call_id]
    assert ours == [(outcome.identity.tool_call_id, ["tool.call.requested", "tool.call.policy_evaluated"])]


def test_a_queue_that_does_not_answer_costs_no_call(stage):
    def away(_subject):
        raise OSError("Redis is away")

    stage.wakeups.bind(stage.host.id, away)
    assert isinstance(submit(stage, READ), Queued)
    assert isinstance(stage.claims().take(), ClaimedCall)


def test_an_input_that_says_the_same_has_the_same_hash(stage):
    one = submit(stage, ("workspace.read", {"path": "a", "limit": 1}))
    two = submit(stage, ("workspace.read", {"limit": 1.0, "path": "a"}))
    assert one.identity.input_hash == two.identity.input_hash


def test_policy_the_record_and_the_tool_see_the_same_normalized_input(stage):
    rules = "version: 1\nrules:\n  - {id: few, effect: allow, tool: workspace.read, args: {/limit: {eq: 5}}}\n"
    pipeline = stage.pipeline_with(bundle(stage.root / "few", rules, stage.registry))
    first = pipeline.submit("workspace.read", {"path": "a", "limit": "5", "offset": None}, stage.subject)
    again = pipeline.submit("workspace.read", {"path": "a", "limit": 5}, stage.subject, join=True)
    assert isinstance(first, Queued)
    assert again.identity.tool_call_id == first.identity.tool_call_id
    requested = next(event for event in stage.events() if event.type == "tool.call.requested").payload
    assert requested["input"] == {"path": "a", "limit": 5}
