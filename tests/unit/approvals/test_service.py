from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from codesdk.approvals import ApprovalConflict, ApprovalState, ApprovalUnknown, Verdict
from codesdk.domain.decisions import Effect
from codesdk.tenancy.principal import Role
from codesdk.toolcalls.records.call_record import Waiting
from stage import stored_call

OTHER_DIGEST = "sha256:" + "1" * 64


@pytest.fixture
def asked(stage):
    outcome = stage.pipeline.submit("workspace.write", {"path": "a", "content": "b"}, stage.subject)
    assert isinstance(outcome, Waiting)
    return stage.approval_service.find(stage.principal.tenant_id, outcome.approval_id)


def vote(stage, asked, verdict=Verdict.APPROVE, *, digest=None, by=None, tenant=None, comment=None):
    return stage.pipeline.vote(
        tenant or stage.principal.tenant_id,
        asked.id,
        verdict,
        digest=digest or asked.digest,
        by=by or stage.principal.id,
        comment=comment,
    )


def approver(stage, name, *groups, role=Role.APPROVER, kind=None):
    principal, _ = stage.enroll("default", name, role)
    return principal.id


def state(stage, asked):
    return stage.approval_service.find(asked.tenant_id, asked.id).state


def expire(stage, seconds_ago=0.0):
    stage.sql(f"UPDATE approvals SET expires_at = {stage.now} - {seconds_ago}")


def test_an_approval_shows_what_would_run(asked, stage):
    assert asked.shown["tool"] == "workspace.write"
    assert asked.shown["input"] == {"path": "a", "content": "b"}
    assert asked.shown["rules"] == ["writes"]
    assert asked.shown["session"] == stage.session.id
    assert asked.expires_at - asked.created_at == pytest.approx(600, abs=1)


def test_a_vote_decides(stage, asked):
    done = vote(stage, asked, comment="fine")
    assert (done.state, done.decided_by, done.comment) == (ApprovalState.APPROVED, stage.principal.id, "fine")
    assert done.decided_at == pytest.approx(asked.created_at, abs=60)


def test_the_same_vote_again_changes_nothing_and_is_no_error(stage, asked):
    vote(stage, asked)
    before = stage.events()
    assert vote(stage, asked).state is ApprovalState.APPROVED
    assert stage.events() == before


def test_the_same_vote_after_the_run_is_no_error_either(stage, asked):
    vote(stage, asked)
    stage.claims().take()
    assert vote(stage, asked).state is ApprovalState.CONSUMED


@pytest.mark.parametrize("verdict", Verdict)
@pytest.mark.parametrize("second", ["other verdict", "other person"])
def test_a_late_vote_conflicts_and_hears_the_outcome(stage, asked, verdict, second):
    other = Verdict.REJECT if verdict is Verdict.APPROVE else Verdict.APPROVE
    first = vote(stage, asked, verdict)
    before = stage.events()
    late_vote, by = (other, None) if second == "other verdict" else (verdict, approver(stage, "ann"))
    with pytest.raises(ApprovalConflict) as late:
        vote(stage, asked, late_vote, by=by)
    assert late.value.status == 409
    assert late.value.details["state"] == first.state.value
    assert late.value.details["decided_by"] == stage.principal.id
    assert stage.events() == before


def test_a_vote_after_expiry_changes_nothing_and_says_so(stage, asked):
    expire(stage)
    with pytest.raises(ApprovalConflict, match="expired") as late:
        vote(stage, asked)
    assert late.value.details["state"] == "expired"
    assert stage.sql("SELECT state, decided_at FROM approvals") == [("pending", None)]


def test_expiry_is_judged_by_the_databases_clock_and_needs_no_sweep(stage, asked):
    stage.clock.advance(10**8)
    assert state(stage, asked) is ApprovalState.PENDING
    expire(stage)
    assert state(stage, asked) is ApprovalState.EXPIRED
    assert stage.approval_service.listing(asked.tenant_id, ApprovalState.PENDING, None) == []
    assert [a.id for a in stage.approval_service.listing(asked.tenant_id, ApprovalState.EXPIRED, None)] == [asked.id]


def test_expiry_is_judged_inside_the_deciding_statement(stage, asked):
    # The approval expires between the look and the write: only a statement that judges by itself notices.
    def work(unit):
        assert (
            stage.approval_service.of_call(unit, stored_call(stage.database, asked.tool_call_id).identity).state
            == "pending"
        )
        unit.connection.exec_driver_sql("UPDATE approvals SET expires_at = 1")
        return stage.approval_service.vote(
            unit, asked.tenant_id, asked.id, Verdict.APPROVE, digest=asked.digest, by=stage.principal.id, comment=None
        )

    with pytest.raises(ApprovalConflict, match="expired"):
        stage.writer.run(work)


def test_a_vote_about_something_else_changes_nothing(stage, asked):
    with pytest.raises(ApprovalConflict, match="digest does not match") as conflict:
        vote(stage, asked, digest=OTHER_DIGEST)
    assert conflict.value.details["digest"] == asked.digest
    assert state(stage, asked) is ApprovalState.PENDING


def test_another_tenants_approval_does_not_exist(stage, asked):
    stranger, _ = stage.enroll("other", "eve")
    with pytest.raises(ApprovalUnknown) as unknown:
        vote(stage, asked, tenant=stranger.tenant_id, by=stranger.id)
    assert unknown.value.status == 404
    with pytest.raises(ApprovalUnknown):
        stage.approval_service.find(stranger.tenant_id, asked.id)
    assert stage.approval_service.listing(stranger.tenant_id, None, None) == []
    assert state(stage, asked) is ApprovalState.PENDING


@pytest.mark.parametrize("approval", ["", "apr_", "x", "apr_00000000000000000000000000", "' OR 1=1 --"])
def test_an_unknown_id_does_not_exist(stage, asked, approval):
    with pytest.raises(ApprovalUnknown):
        stage.pipeline.vote(
            asked.tenant_id, approval, Verdict.APPROVE, digest=asked.digest, by=stage.principal.id, comment=None
        )


def test_of_fifty_voters_at_once_exactly_one_decides(stage, asked):
    start = threading.Barrier(50)
    voters = [approver(stage, f"voter {number}") for number in range(50)]

    def cast(number):
        start.wait(10)
        verdict = Verdict.APPROVE if number % 2 else Verdict.REJECT
        try:
            return vote(stage, asked, verdict, by=voters[number])
        except ApprovalConflict as conflict:
            return conflict

    with ThreadPoolExecutor(50) as pool:
        said = list(pool.map(cast, range(50)))
    winners = [answer for answer in said if not isinstance(answer, ApprovalConflict)]
    assert len(winners) == 1
    assert {answer.details["decided_by"] for answer in said if isinstance(answer, ApprovalConflict)} == {
        winners[0].decided_by
    }
    decided = [event for event in stage.events() if event.type == "approval.decided"]
    assert [event.payload["by"] for event in decided] == [winners[0].decided_by]


def test_an_approval_is_consumed_once(stage, asked):
    vote(stage, asked)
    assert stage.writer.run(lambda unit: stage.approval_service.consume(unit, asked.id))
    assert not stage.writer.run(lambda unit: stage.approval_service.consume(unit, asked.id))


@pytest.mark.parametrize("verdict", [None, Verdict.REJECT])
def test_what_was_not_approved_cannot_be_consumed(stage, asked, verdict):
    if verdict:
        vote(stage, asked, verdict)
    assert not stage.writer.run(lambda unit: stage.approval_service.consume(unit, asked.id))


def test_the_listing_is_filtered_by_session_and_state(stage, asked):
    other = stage.open_session()
    stage.pipeline.submit("workspace.write", {"path": "c", "content": "d"}, other)
    assert len(stage.approval_service.listing(asked.tenant_id, None, None)) == 2
    assert [a.id for a in stage.approval_service.listing(asked.tenant_id, None, stage.session.id)] == [asked.id]
    assert stage.approval_service.listing(asked.tenant_id, ApprovalState.REJECTED, None) == []


def test_a_person_speaks_in_the_log_with_their_source(stage, asked):
    vote(stage, asked, Verdict.REJECT, comment="not now")
    spoken = [event for event in stage.events() if event.type == "tool.call.policy_evaluated"]
    assert [(e.payload["source"], e.payload["result"]) for e in spoken] == [
        ("codesdk", Effect.ASK),
        ("user", Effect.DENY),
    ]
    assert spoken[1].payload["decided_by"] == stage.principal.id


class PowerCut(Exception):
    """The process ends here."""


def test_a_process_that_ends_between_vote_and_commit_has_counted_nothing(stage, asked):
    def cut(unit):
        stage.approval_service.vote(
            unit, asked.tenant_id, asked.id, Verdict.APPROVE, digest=asked.digest, by=stage.principal.id, comment=None
        )
        raise PowerCut

    with pytest.raises(PowerCut):
        stage.writer.run(cut)
    assert (state(stage, asked), stage.sql("SELECT * FROM approval_votes")) == (ApprovalState.PENDING, [])
    assert stage.claims().take() is None
    assert vote(stage, asked).state is ApprovalState.APPROVED


def test_a_worker_that_ends_between_consume_and_run_leaves_nothing_that_a_second_could_start(stage, asked):
    vote(stage, asked)
    first = stage.claims(generation=1).take()
    assert first.stored.identity.tool_call_id == asked.tool_call_id
    assert stage.claims(generation=2).take() is None  # it is the first's, or what recovery makes of it
    assert state(stage, asked) is ApprovalState.CONSUMED
    assert stage.types().count("tool.call.started") == 1


def test_at_the_very_moment_of_expiry_a_vote_and_the_sweep_agree_on_one_outcome(stage, asked, at_once):
    stage.sql(f"UPDATE approvals SET expires_at = {stage.now} + 0.05")

    def act(number):
        for _ in range(20):
            if number % 2:
                stage.expire_overdue()
                continue
            try:
                vote(stage, asked)
            except ApprovalConflict:
                continue

    at_once(act, 4)
    stage.sql(f"UPDATE approvals SET expires_at = {stage.now} WHERE state = 'pending'")
    stage.expire_overdue()
    types = stage.types()
    assert types.count("approval.decided") + types.count("approval.expired") == 1
    assert ("tool.call.denied" in types) is (state(stage, asked) is ApprovalState.EXPIRED)
