"""Required votes: groups, quorums, people other than the requester, escalation. On both databases."""

from __future__ import annotations

import pytest

from codesdk.approvals import ApprovalConflict, ApprovalState, NotAnApprover, Verdict, describe_approvers
from codesdk.domain.decisions import ApprovalSpec, Demand, Escalation
from codesdk.tenancy import store as tenancy
from codesdk.tenancy.principal import Role
from codesdk.toolcalls.records.call_record import ClaimedCall
from stage import bundle

APPROVE, REJECT = Verdict
PENDING, APPROVED = ApprovalState.PENDING, ApprovalState.APPROVED


@pytest.fixture
def person(stage):
    """Enrolls an approver, as a member of these groups."""

    def enroll(name, *groups, role=Role.APPROVER, kind="person"):
        principal, _ = stage.enroll("default", name, role)
        stage.sql("UPDATE principals SET kind = :kind WHERE id = :id", kind=kind, id=principal.id)
        for group in groups:
            join(stage, principal.id, group)
        return principal.id

    return enroll


def join(stage, principal, group):
    stage.writer.run(lambda unit: tenancy.join_group(unit.connection, record(unit, principal), group))


def leave(stage, principal, group):
    assert stage.writer.run(lambda unit: tenancy.leave_group(unit.connection, record(unit, principal), group))


def record(unit, principal):
    return tenancy.principal(unit.connection, principal)


def ask(stage, approval, more="", *, waits=True):
    policy = f"version: 1\nrules:\n  - {{id: writes, effect: ask, tool: workspace.write, approval: {approval}}}\n{more}"
    stage.bundle = bundle(stage.root / "asking", policy, stage.registry)
    stage.pipeline = stage.pipeline_with(stage.bundle)
    outcome = stage.pipeline.submit("workspace.write", {"path": "a", "content": "b"}, stage.subject)
    return stage.approval_service.find(stage.principal.tenant_id, outcome.approval_id) if waits else outcome


def vote(stage, asked, by, verdict=APPROVE):
    return stage.pipeline.vote(asked.tenant_id, asked.id, verdict, digest=asked.digest, by=by, comment=None)


def later(stage, seconds):
    """So much time passes on the database's clock."""
    stage.sql(f"UPDATE approvals SET created_at = created_at - {seconds}, expires_at = expires_at - {seconds}")
    stage.sql(f"UPDATE approval_demands SET escalate_at = escalate_at - {seconds}")


def user_voices(stage):
    spoken = [event.payload for event in stage.events() if event.type == "tool.call.policy_evaluated"]
    return [(voice["result"], voice["decided_by"]) for voice in spoken if voice["source"] == "user"]


def test_only_members_of_the_group_may_answer(stage, person):
    ann, bob = person("ann", "finance"), person("bob", "ops")
    asked = ask(stage, "{group: finance}")
    for verdict in Verdict:
        with pytest.raises(NotAnApprover, match="one of finance") as refused:
            vote(stage, asked, bob, verdict)
        assert refused.value.status == 403
    assert vote(stage, asked, ann).state is APPROVED


def test_a_group_of_the_same_name_in_another_tenant_is_another_group(stage, person):
    person("lea", "finance")
    asked = ask(stage, "{group: finance}")
    eve, _ = stage.enroll("other", "eve", Role.APPROVER)
    stage.sql("INSERT INTO group_members VALUES (:tenant, 'finance', :id, 0)", tenant=eve.tenant_id, id=eve.id)
    ann = person("ann")
    with pytest.raises(NotAnApprover):
        vote(stage, asked, eve.id)  # even where the edge lets a foreign principal through
    with pytest.raises(NotAnApprover):
        vote(stage, asked, ann)


def test_a_quorum_takes_that_many_different_people(stage, person):
    ann, bob = person("ann"), person("bob")
    asked = ask(stage, "{quorum: 2}")
    first = vote(stage, asked, ann)
    assert (first.state, first.demands[0].approved) == (PENDING, 1)
    assert stage.claims().take() is None
    again = vote(stage, asked, ann)
    assert (again.state, again.demands[0].approved) == (PENDING, 1)
    done = vote(stage, asked, bob)
    assert (done.state, done.decided_by, [v.by for v in done.votes]) == (APPROVED, bob, [ann, bob])
    assert user_voices(stage) == [("allow", ann), ("allow", bob)]
    assert isinstance(stage.claims().take(), ClaimedCall)


def test_a_reject_decides_at_once_whatever_the_quorum(stage, person):
    ann, bob, cem = person("ann"), person("bob"), person("cem")
    asked = ask(stage, "{quorum: 3}")
    vote(stage, asked, ann)
    assert vote(stage, asked, bob, REJECT).state is ApprovalState.REJECTED
    assert stage.types()[-1] == "tool.call.denied"
    with pytest.raises(ApprovalConflict, match="rejected"):
        vote(stage, asked, cem)


def test_a_second_vote_of_the_same_person_conflicts_and_the_first_stands(stage, person):
    ann = person("ann")
    asked = ask(stage, "{quorum: 2}")
    vote(stage, asked, ann)
    before = stage.events()
    with pytest.raises(ApprovalConflict, match="first vote stands"):
        vote(stage, asked, ann, REJECT)
    assert stage.events() == before


def test_programs_do_not_make_a_quorum_and_may_answer_alone(stage, person):
    person("ann")
    bot = person("bot", kind="program")
    with pytest.raises(NotAnApprover):
        vote(stage, ask(stage, "{quorum: 2}"), bot)
    stage.sql("UPDATE approvals SET state = 'cancelled'")
    assert vote(stage, ask(stage, "{}"), bot).state is APPROVED


def test_who_asks_may_not_answer_with_whatever_key_where_a_rule_says_so(stage, person):
    ann = person("ann")
    asked = ask(stage, "{not_requester: true}")
    with pytest.raises(NotAnApprover, match="other than the requester"):
        vote(stage, asked, stage.principal.id)
    with pytest.raises(NotAnApprover):
        vote(stage, asked, person("bot", kind="program"))
    assert vote(stage, asked, ann).state is APPROVED


@pytest.mark.parametrize("role", [Role.DEVELOPER, Role.AUDITOR, Role.POLICY_AUTHOR])
def test_a_role_that_decides_nothing_does_not_vote_even_where_the_edge_lets_it_through(stage, person, role):
    with pytest.raises(NotAnApprover):
        vote(stage, ask(stage, "{}"), person("dev", role=role))


def test_whoever_left_the_group_or_was_disabled_since_does_not_count(stage, person):
    ann, bob, cem, dan = (person(name, "finance") for name in ("ann", "bob", "cem", "dan"))
    asked = ask(stage, "{group: finance, quorum: 2}")
    vote(stage, asked, ann)
    leave(stage, ann, "finance")
    assert vote(stage, asked, bob).state is PENDING
    stage.sql("UPDATE principals SET disabled_at = 1 WHERE id = :id", id=bob)
    assert vote(stage, asked, cem).state is PENDING
    assert vote(stage, asked, dan).state is APPROVED


def test_after_its_time_others_may_answer_too(stage, person):
    lea = person("lea", "leads")
    asked = ask(stage, "{group: finance, timeout: 30m, escalate: {after: 10m, to: leads}}")
    assert describe_approvers(asked) == "one of finance (or leads)"
    with pytest.raises(NotAnApprover):
        vote(stage, asked, lea)
    later(stage, 601)
    assert vote(stage, asked, lea).state is APPROVED


def test_an_escalated_quorum_may_be_made_of_both_groups(stage, person):
    ann, lea = person("ann", "finance"), person("lea", "leads")
    person("max", "finance")
    asked = ask(stage, "{group: finance, quorum: 2, timeout: 30m, escalate: {after: 10m, to: leads}}")
    assert vote(stage, asked, ann).state is PENDING
    later(stage, 601)
    assert vote(stage, asked, lea).state is APPROVED


def test_the_moment_of_escalation_is_judged_in_the_voting_statement(stage, person):
    lea = person("lea", "leads")
    asked = ask(stage, "{group: finance, timeout: 30m, escalate: {after: 10m, to: leads}}")
    stage.clock.advance(10**6)  # this process's clock has no say
    with pytest.raises(NotAnApprover):
        vote(stage, asked, lea)
    stage.sql(f"UPDATE approval_demands SET escalate_at = {stage.now} + 3600")
    with pytest.raises(NotAnApprover):
        vote(stage, asked, lea)
    stage.sql(f"UPDATE approval_demands SET escalate_at = {stage.now}")
    assert vote(stage, asked, lea).state is APPROVED


def test_two_rules_that_ask_each_get_their_group(stage, person):
    more = (
        "  - {id: also, effect: ask, classification: write, approval: {group: ops, timeout: 5m, not_requester: true}}"
    )
    ann, oli = person("ann", "finance"), person("oli", "ops")
    asked = ask(stage, "{group: finance, timeout: 10m}", more)
    assert asked.expires_at - asked.created_at == pytest.approx(300, abs=1)
    assert sorted(asked.rules) == ["also", "writes"]
    assert vote(stage, asked, ann).state is PENDING
    assert vote(stage, asked, oli).state is APPROVED


def test_one_person_of_both_groups_is_enough_for_both(stage, person):
    more = "  - {id: also, effect: ask, classification: write, approval: {group: ops}}"
    both = person("max", "finance", "ops")
    assert vote(stage, ask(stage, "{group: finance}", more), both).state is APPROVED


def test_a_quorum_of_votes_at_once_is_found_by_whoever_comes_last(stage, person, at_once):
    voters = [person(f"voter {number}") for number in range(10)]
    asked = ask(stage, "{quorum: 5}")

    def cast(number):
        try:
            return vote(stage, asked, voters[number]).state
        except ApprovalConflict:
            return None

    said = at_once(cast, 10)
    assert sorted(state for state in said if state) == [APPROVED, *[PENDING] * 4]
    assert stage.types().count("approval.decided") == 1
    assert len(user_voices(stage)) == 5


def test_the_question_in_the_log_says_whose_yes_it_takes(stage, person):
    person("ann", "finance")
    person("bob", "finance")
    ask(stage, "{group: finance, quorum: 2, not_requester: true, timeout: 30m, escalate: {after: 10m, to: leads}}")
    (asked,) = [event.payload for event in stage.events() if event.type == "approval.requested"]
    spec = ApprovalSpec(
        timeout_s=1800,
        demands=(Demand(group="finance", quorum=2, escalation=Escalation(after_s=600, to="leads")),),
        not_requester=True,
    )
    assert asked["demands"] == spec.model_dump(mode="json")["demands"]
    assert asked["not_requester"] is True


def sweep(stage):
    return stage.approval_flow().escalate_due()


def test_an_escalation_is_told_once_and_not_before_its_time(stage, person):
    person("lea", "leads")
    ask(stage, "{group: finance, timeout: 30m, escalate: {after: 10m, to: leads}}")
    assert sweep(stage) == 0
    later(stage, 601)
    assert (sweep(stage), sweep(stage)) == (1, 0)
    assert [e.payload["to"] for e in stage.events() if e.type == "approval.escalated"] == ["leads"]


def test_what_was_answered_does_not_escalate(stage, person):
    ann, _ = person("ann", "finance"), person("lea", "leads")
    asked = ask(stage, "{group: finance, timeout: 30m, escalate: {after: 10m, to: leads}}")
    vote(stage, asked, ann)
    later(stage, 601)
    assert sweep(stage) == 0


def test_what_expires_is_told_before_the_denial_and_is_no_rejection(stage, person):
    ann = person("ann")
    person("bob")
    asked = ask(stage, "{quorum: 2}")
    vote(stage, asked, ann)
    stage.sql("UPDATE approvals SET expires_at = 1")
    assert stage.expire_overdue() == 1
    assert stage.types()[-2:] == ["approval.expired", "tool.call.denied"]
    denied = stage.events()[-1].payload
    assert denied["code"] == "APPROVAL_EXPIRED"
    assert "It was not rejected. 1 said yes, and it takes 2 approvers." in denied["reason"]


@pytest.mark.parametrize(
    ("approval", "there"),
    [
        ("{group: finance}", []),
        ("{group: finance, quorum: 2}", [("ann", "finance")]),
        ("{not_requester: true}", []),
        ("{group: finance, not_requester: true}", [("bot", "finance")]),
        ("{quorum: 3}", [("ann", "finance")]),
    ],
)
def test_a_question_that_nobody_could_answer_is_denied_at_once(stage, person, approval, there):
    for name, group in there:
        person(name, group, kind="program" if name == "bot" else "person")
    outcome = ask(stage, approval, waits=False)
    assert outcome.code.value == "NO_APPROVER"
    assert "nobody can" in outcome.message
    assert stage.types()[-2:] == ["tool.call.policy_evaluated", "tool.call.denied"]
    assert stage.sql("SELECT count(*) FROM approvals") == stage.sql("SELECT count(*) FROM approval_demands") == [(0,)]


def test_a_question_that_only_the_escalation_could_answer_is_asked(stage, person):
    person("lea", "leads")
    assert ask(stage, "{group: finance, timeout: 30m, escalate: {after: 10m, to: leads}}").state is PENDING


def test_waiting_says_whose_yes_it_takes_by_which_rule_and_until_when(stage, person):
    person("ann", "finance")
    waiting = ask(stage, "{group: finance, timeout: 1m}", waits=False)
    asked = stage.pending()[0]
    assert (waiting.who, waiting.rules, waiting.expires_at) == ("one of finance", ("writes",), asked.expires_at)
    assert stage.find(waiting.identity.tool_call_id) == waiting
