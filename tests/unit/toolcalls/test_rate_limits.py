"""A rule's rate: a number of calls per window, counted in the unit that accepts the call, even with concurrent ones."""

from __future__ import annotations

import threading

import pytest
from tests.stage import bundle

from codesdk.domain.calls import DenialCode
from codesdk.toolcalls.records.call_record import Denied, Queued, Waiting

POLICY = """\
version: 1
name: rated
default: deny
rules:
- {id: reads, effect: allow, tool: workspace.read, obligations: {rate: {calls: 3, per: 1m, by: %s}}}
- {id: lists, effect: allow, tool: workspace.list}
- {id: writes, effect: ask, tool: workspace.write, obligations: {rate: {calls: 1, per: 60}}}
"""


@pytest.fixture
def rated(stage):
    def make(by):
        return stage.pipeline_with(bundle(stage.root / f"rated-{by}", POLICY % by, stage.registry))

    return make


def read(pipeline, subject, number):
    return pipeline.submit("workspace.read", {"path": f"f{number}"}, subject)


def kinds(outcomes):
    return [type(outcome) for outcome in outcomes]


def test_the_call_over_the_rate_is_denied_with_code_reason_and_when_to_try_again(stage, rated):
    pipeline = rated("session")
    outcomes = [read(pipeline, stage.subject, number) for number in range(4)]
    assert kinds(outcomes) == [Queued, Queued, Queued, Denied]
    last = outcomes[3]
    assert (last.code, last.rules) == (DenialCode.RATE_LIMITED, ("reads",))
    assert "3 calls in 60 s for each session through; try again in" in last.message
    assert 0 < last.retry_after_s <= 60
    assert stage.events()[-1].payload["code"] == "RATE_LIMITED"
    assert isinstance(pipeline.submit("workspace.list", {}, stage.subject), Queued)


def test_the_window_slides_a_call_at_a_time_and_denied_ones_do_not_count(stage, rated):
    pipeline = rated("session")
    for number in range(3):
        read(pipeline, stage.subject, number)
    assert kinds(read(pipeline, stage.subject, number) for number in range(3, 9)) == [Denied] * 6
    oldest = "(SELECT min(at) FROM rate_uses)"
    stage.sql(f"UPDATE rate_uses SET at = at - 61 WHERE at = {oldest}")
    assert kinds(read(pipeline, stage.subject, number) for number in (10, 11)) == [Queued, Denied]
    assert stage.sql("SELECT count(*) FROM rate_uses") == [(3,)]


@pytest.mark.parametrize(("by", "others"), [("session", Queued), ("principal", Denied), ("tenant", Denied)])
def test_sessions_share_what_their_principal_or_tenant_may(stage, rated, by, others):
    pipeline = rated(by)
    for number in range(3):
        read(pipeline, stage.subject, number)
    assert isinstance(read(pipeline, stage.open_session(), 9), others)


@pytest.mark.parametrize(("by", "others"), [("session", Queued), ("principal", Queued), ("tenant", Denied)])
def test_another_principal_of_the_tenant_shares_only_the_tenants(stage, rated, by, others):
    pipeline = rated(by)
    for number in range(3):
        read(pipeline, stage.subject, number)
    colleague, _ = stage.enroll("default", "colleague")
    assert isinstance(read(pipeline, stage.open_session(colleague), 9), others)
    stranger, _ = stage.enroll("elsewhere", "stranger")
    assert isinstance(read(pipeline, stage.open_session(stranger), 9), Queued)


def test_however_many_ask_at_once_exactly_as_many_as_may_get_through(stage, rated):
    pipeline = rated("tenant")
    sessions = [stage.open_session() for _ in range(4)]
    outcomes = []

    def ask(subject, start):
        outcomes.extend(read(pipeline, subject, start + number) for number in range(3))

    threads = [threading.Thread(target=ask, args=(subject, 10 * at)) for at, subject in enumerate(sessions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert kinds(outcomes).count(Queued) == 3
    assert kinds(outcomes).count(Denied) == 9


def test_a_question_counts_when_it_is_asked_and_joining_it_does_not(stage, rated):
    pipeline = rated("session")
    asked = [pipeline.submit("workspace.write", {"path": "a", "content": "b"}, stage.subject) for _ in range(2)]
    assert kinds(asked) == [Waiting, Waiting]
    other = pipeline.submit("workspace.write", {"path": "b", "content": "b"}, stage.subject)
    assert (other.code, other.rules) == (DenialCode.RATE_LIMITED, ("writes",))


def test_a_closed_session_leaves_no_count_behind(stage, rated):
    pipeline = rated("session")
    read(pipeline, stage.subject, 1)
    assert stage.sql("SELECT count(*) FROM rate_uses") == [(1,)]
    stage.sessions.close(stage.principal.tenant_id, stage.subject.session_id)
    assert stage.sql("SELECT count(*) FROM rate_uses") == [(0,)]
