"""The approvals feed: one entry per change, numbered in commit order. On both databases."""

from __future__ import annotations

import pytest

from codesdk.approvals import ApprovalState, Verdict
from codesdk.approvals.feed import PAGE_SIZE
from codesdk.archive.store import remove_session, renew_epochs
from codesdk.tenancy.principal import Role
from codesdk.toolcalls.records.call_record import Waiting


def ask(stage, path="a", subject=None):
    outcome = stage.pipeline.submit("workspace.write", {"path": path, "content": "b"}, subject or stage.subject)
    assert isinstance(outcome, Waiting)
    return stage.approval_service.find((subject or stage.subject).tenant_id, outcome.approval_id)


def vote(stage, asked, verdict=Verdict.APPROVE, by=None):
    voter = by or stage.principal
    stage.pipeline.vote(asked.tenant_id, asked.id, verdict, digest=asked.digest, by=voter.id, comment=None)


def told(stage, after=0, tenant=None):
    page = stage.approval_service.feeds.page(tenant or stage.principal.tenant_id, after)
    return [(news.number, news.kind.value, news.approval.id) for news in page]


def test_each_thing_that_happens_to_an_approval_is_told_once_in_order(stage):
    one, two = ask(stage, "one"), ask(stage, "two")
    vote(stage, one)
    vote(stage, one)  # the same again changes nothing
    vote(stage, two, Verdict.REJECT)
    assert told(stage) == [
        (1, "requested", one.id),
        (2, "requested", two.id),
        (3, "voted", one.id),
        (4, "decided", one.id),
        (5, "voted", two.id),
        (6, "decided", two.id),
    ]
    news = stage.approval_service.feeds.page(stage.principal.tenant_id, 2)[0]
    assert (news.by, news.approval.state) == (stage.principal.id, ApprovalState.APPROVED)
    assert stage.approval_service.feeds.place(stage.principal.tenant_id) == ("0", 6)


@pytest.mark.parametrize("how", ["expired", "cancelled", "voided", "closed"])
def test_an_end_without_a_vote_is_told_too(stage, how):
    asked = ask(stage)
    before = stage.approval_service.feeds.place(asked.tenant_id).last
    if how == "expired":
        stage.sql(f"UPDATE approvals SET expires_at = {stage.now}")
        assert stage.expire_overdue() == 1
    elif how == "cancelled":
        stage.cancel(asked.tool_call_id, "no more")
    elif how == "voided":
        vote(stage, asked)
        before += 2
        stage.sql("UPDATE sessions SET image = 'sha256:other'")
        stage.tampered = True
        stage.claims().take()
    else:
        stage.sessions.close(asked.tenant_id, asked.session_id)
    assert told(stage, before) == [(before + 1, "cancelled" if how == "closed" else how, asked.id)]


def test_a_refused_vote_and_a_rolled_back_question_tell_nothing(stage):
    asked = ask(stage)
    before = stage.approval_service.feeds.place(asked.tenant_id)
    eve, _ = stage.enroll("default", "eve", Role.DEVELOPER)
    with pytest.raises(Exception, match="cannot vote"):
        vote(stage, asked, by=eve)
    assert stage.approval_service.feeds.place(asked.tenant_id) == before


def test_tenants_have_feeds_of_their_own(stage):
    eve, _ = stage.enroll("other", "eve", Role.DEVELOPER, Role.APPROVER)
    theirs = ask(stage, subject=stage.open_session(eve))
    ours = ask(stage)
    assert told(stage) == [(1, "requested", ours.id)]
    assert told(stage, tenant=eve.tenant_id) == [(1, "requested", theirs.id)]
    both = {stage.principal.tenant_id: 1, eve.tenant_id: 1}
    assert stage.approval_service.feeds.latest_numbers([*both, "ten_unknown"]) == both


def test_numbers_are_dense_and_in_order_however_many_write_at_once(stage, at_once):
    at_once(lambda number: ask(stage, str(number)), 12)
    page = told(stage)
    assert [number for number, _, _ in page] == list(range(1, 13))
    assert len({approval for _, _, approval in page}) == 12


def test_a_page_is_bounded_and_the_next_begins_where_it_ended(stage):
    for number in range(PAGE_SIZE + 3):
        ask(stage, str(number))
    first = told(stage)
    assert len(first) == PAGE_SIZE
    assert [number for number, _, _ in told(stage, first[-1][0])] == [PAGE_SIZE + 1, PAGE_SIZE + 2, PAGE_SIZE + 3]


def test_what_was_of_a_removed_session_is_gone_and_numbers_go_on(stage):
    other = stage.open_session()
    ask(stage, subject=other)
    kept = ask(stage)
    stage.sessions.close(other.tenant_id, other.session_id)
    stage.writer.run(lambda unit: remove_session(unit.connection, other.session_id, 1.0, "old"))
    assert told(stage) == [(2, "requested", kept.id)]


def test_a_restored_copy_has_another_epoch_in_every_tenants_feed(stage):
    ask(stage)
    quiet, _ = stage.enroll("quiet", "q")
    stage.writer.run(lambda unit: renew_epochs(unit.connection, stage.ids))
    ours, theirs = (stage.approval_service.feeds.place(each.tenant_id) for each in (stage.principal, quiet))
    assert ours.last == 1
    assert len({ours.epoch, theirs.epoch, "0"}) == 3
    ask(stage, "next")
    assert stage.approval_service.feeds.place(stage.principal.tenant_id) == (ours.epoch, 2)
