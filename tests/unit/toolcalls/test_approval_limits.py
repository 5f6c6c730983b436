"""Limits on a session's approval requests and pending approvals: more are denied, and nothing is lost."""

from __future__ import annotations

import pytest

from codesdk.approvals import Verdict
from codesdk.domain.calls import DenialCode
from codesdk.toolcalls.decision.call_decision import ApprovalLimits
from codesdk.toolcalls.records.call_record import Denied, Queued, Waiting
from stage import bundle

POLICY = """\
version: 1
name: asking
default: deny
rules:
- {id: reads, effect: allow, tool: workspace.read}
- {id: writes, effect: ask, tool: workspace.write, grant: {offer: session}, obligations: {rate: {calls: 9, per: 60}}}
"""


@pytest.fixture
def asking(stage):
    def make(**limits):
        stage.pipeline = stage.pipeline_with(
            bundle(stage.root / "asking", POLICY, stage.registry), limits=ApprovalLimits(**limits)
        )

    return make


def write(stage, path, subject=None):
    return stage.pipeline.submit("workspace.write", {"path": path, "content": "b"}, subject or stage.subject)


def test_a_session_that_asks_too_often_is_refused_with_when_to_come_again_and_nothing_else_is(stage, asking):
    asking(per_minute=2)
    first, second, third = (write(stage, name) for name in "abc")
    assert [type(each) for each in (first, second)] == [Waiting, Waiting]
    assert (third.code, third.rules) == (DenialCode.TOO_MANY_QUESTIONS, ("writes",))
    assert "at most 2 times in 60 s for each session; try again in" in third.message
    assert 0 < third.retry_after_s <= 60
    assert stage.types()[-1] == "tool.call.denied"
    assert stage.events()[-1].payload["code"] == "TOO_MANY_QUESTIONS"
    assert isinstance(stage.pipeline.submit("workspace.read", {"path": "a"}, stage.subject), Queued)
    assert isinstance(write(stage, "a", stage.open_session()), Waiting)
    assert len(stage.pending()) == 3


def test_a_repeated_call_joins_its_question_and_counts_once(stage, asking):
    asking(per_minute=1, waiting=1)
    first = write(stage, "a")
    assert write(stage, "a").approval_id == first.approval_id
    assert isinstance(write(stage, "b"), Denied)


def test_a_tenants_sessions_share_its_rate(stage, asking):
    asking(per_minute_of_tenant=2)
    outcomes = [write(stage, "a", stage.open_session()) for _ in range(3)]
    assert [type(each) for each in outcomes] == [Waiting, Waiting, Denied]
    assert "for each tenant" in outcomes[2].message
    eve, _ = stage.enroll("other", "eve")
    assert isinstance(write(stage, "a", stage.open_session(eve)), Waiting)


def test_only_so_many_wait_and_an_answer_makes_room(stage, asking):
    asking(waiting=2)
    first, _, third = (write(stage, name) for name in "abc")
    assert (third.code, third.retry_after_s) == (DenialCode.TOO_MANY_QUESTIONS, None)
    assert "2 calls of this session wait for people already" in third.message
    asked = stage.approval_service.find(stage.principal.tenant_id, first.approval_id)
    stage.pipeline.vote(
        asked.tenant_id, asked.id, Verdict.REJECT, digest=asked.digest, by=stage.principal.id, comment=None
    )
    assert isinstance(write(stage, "c"), Waiting)


def test_a_rules_own_rate_keeps_its_own_code(stage, asking):
    asking(per_minute=100)
    outcomes = [write(stage, str(number)) for number in range(10)]
    assert outcomes[-1].code is DenialCode.RATE_LIMITED


def test_a_refused_question_counts_under_no_rate(stage, asking):
    asking(per_minute=2)
    for number in range(5):
        write(stage, str(number))
    assert stage.sql("SELECT rule, count(*) FROM rate_uses GROUP BY rule ORDER BY rule") == [
        ("(asks)", 2),
        ("writes", 2),
    ]


def test_of_many_questions_at_once_no_more_than_the_limit_come_through(stage, asking, at_once):
    asking(per_minute=5, waiting=50)
    outcomes = at_once(lambda number: write(stage, str(number)), 16)
    assert sum(isinstance(each, Waiting) for each in outcomes) == 5
    assert len(stage.pending()) == 5
