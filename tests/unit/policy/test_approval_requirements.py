"""Approval requirements of rules: parsed, refused if contradictory, combined to the strictest."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codesdk.domain.decisions import ApprovalSpec, Demand, Escalation, GrantKind, GrantOffer
from codesdk.policy import PolicyInvalid, decide
from codesdk.policy.evaluation.approval_requirements import merge_approvals, merge_grants
from codesdk.policy.schema.models import Approval, Escalate, Grant

from .conftest import WRITE, subject
from .test_decision import write_call

ONCE, SESSION, UNTIL = GrantKind


def asking(write_bundle, *rules):
    written = "".join(f"- {{id: r{number}, effect: ask, {rule}}}\n" for number, rule in enumerate(rules))
    return decide(write_call(), WRITE, subject(), write_bundle(f"rules:\n{written}"))


def test_everything_that_a_rule_says_of_its_approval_is_in_the_decision(write_bundle):
    decision = asking(
        write_bundle,
        "approval: {group: finance, quorum: 2, not_requester: true, timeout: 30m, on_timeout: deny,"
        " escalate: {after: 10m, to: finance-leads}}",
    )
    later = Escalation(after_s=600, to="finance-leads")
    assert decision.approval == ApprovalSpec(
        timeout_s=1800, demands=(Demand(group="finance", quorum=2, escalation=later),), not_requester=True
    )
    assert decision.grant is None


def test_one_rule_that_wants_a_preview_is_enough(write_bundle):
    assert not asking(write_bundle, "approval: {quorum: 2}", "approval: {timeout: 5m}").approval.preview
    assert asking(write_bundle, "approval: {quorum: 2}", "approval: {preview: true}").approval.preview
    with pytest.raises(PolicyInvalid):
        asking(write_bundle, "approval: {preview: sometimes}")


def test_what_a_rule_offers_is_in_the_decision(write_bundle):
    decision = asking(write_bundle, "grant: {offer: [once, session], max_ttl: 2h, max_uses: 20}")
    assert decision.grant == GrantOffer(offer=(ONCE, SESSION), max_ttl_s=7200, max_uses=20)


def test_where_it_takes_two_people_nobody_alone_may_give_a_grant(write_bundle):
    offers = "grant: {offer: session}"
    assert asking(write_bundle, offers, "approval: {quorum: 2}, grant: {offer: once}").grant is None
    assert asking(write_bundle, f"approval: {{group: a}}, {offers}", f"approval: {{group: b}}, {offers}").grant is None


def test_a_rule_that_says_nothing_needs_one_yes_of_anybody_and_offers_nothing(write_bundle):
    decision = asking(write_bundle, "reason: look")
    assert (decision.approval, decision.grant) == (ApprovalSpec(), None)


@pytest.mark.parametrize(
    ("written", "complaint"),
    [
        ("effect: deny, approval: {quorum: 2}", "belongs to a rule with `effect: ask`"),
        ("effect: allow, grant: {offer: session}", "belongs to a rule with `effect: ask`"),
        ("effect: ask, floor: true, grant: {offer: session}", "contradict"),
        ("effect: ask, approval: {quorum: 2}, grant: {offer: session}", "only a single approver"),
        ("effect: ask, approval: {quorum: 0}", "greater than or equal to 1"),
        ("effect: ask, approval: {quorum: 11}", "less than or equal to 10"),
        ("effect: ask, approval: {on_timeout: allow}", "deny"),
        ("effect: ask, approval: {group: No Group}", "pattern"),
        ("effect: ask, approval: {group: a, escalate: {after: 10m, to: b}}", "expires after 600 s"),
        ("effect: ask, approval: {group: a, escalate: {after: 1m, to: a}}", "can approve already"),
        ("effect: ask, approval: {escalate: {after: 1m, to: a}}", "without a group"),
        ("effect: ask, grant: {offer: []}", "at least 1"),
        ("effect: ask, grant: {offer: forever}", "once"),
        ("effect: ask, grant: {offer: session, max_uses: 0}", "greater than or equal to 1"),
        ("effect: ask, grant: {max_ttl: 1h}", "offer"),
    ],
)
def test_nonsense_is_an_error_with_its_place(write_bundle, written, complaint):
    with pytest.raises(PolicyInvalid) as refused:
        write_bundle(f"rules:\n- {{id: r, {written}}}\n")
    assert complaint in str(refused.value)
    assert refused.value.line >= 2


def test_several_asks_offer_only_what_each_of_them_offers(write_bundle):
    wide = "grant: {offer: [session, until], max_ttl: 2h, max_uses: 20}"
    narrow = "grant: {offer: [session], max_ttl: 8h, max_uses: 5}"
    assert asking(write_bundle, wide, narrow).grant == GrantOffer(offer=(SESSION,), max_ttl_s=7200, max_uses=5)
    assert asking(write_bundle, wide, "reason: none").grant is None
    assert asking(write_bundle, wide, "floor: true").grant is None


approvals = st.builds(
    Approval,
    group=st.sampled_from(["a", "b", None]),
    quorum=st.integers(1, 4),
    not_requester=st.booleans(),
    timeout=st.integers(100, 1000),
    escalate=st.none(),
) | st.builds(
    Approval,
    group=st.sampled_from(["a", "b"]),
    quorum=st.integers(1, 4),
    timeout=st.integers(100, 1000),
    escalate=st.builds(Escalate, after=st.integers(1, 99), to=st.just("c")),
)
PEOPLE = {"a1": {"a"}, "a2": {"a"}, "b1": {"b"}, "ab": {"a", "b"}, "c1": {"c"}, "x1": set(), "x2": set()}


def satisfied(demands, voters):
    """By the words of the reference: so many different people of the group, or those to whom it escalated."""
    return all(
        demand.quorum
        <= sum(
            demand.group is None
            or demand.group in PEOPLE[voter]
            or (demand.escalation is not None and demand.escalation.to in PEOPLE[voter])
            for voter in voters
        )
        for demand in demands
    )


@given(st.lists(approvals, min_size=1, max_size=4), st.sets(st.sampled_from(sorted(PEOPLE)), min_size=1))
def test_what_several_rules_need_together_is_met_exactly_when_each_of_them_is(written, voters):
    together = merge_approvals(written)
    assert satisfied(together.demands, voters) is all(
        satisfied(merge_approvals([one]).demands, voters) for one in written
    )
    assert together.timeout_s == min(one.timeout for one in written)
    assert together.not_requester is any(one.not_requester for one in written)


@given(
    st.lists(st.builds(Grant, offer=st.lists(st.sampled_from(GrantKind), min_size=1), max_uses=st.none()), min_size=1)
)
def test_what_is_offered_is_never_wider_than_any_rule(grants):
    found = merge_grants(grants)
    for grant in grants:
        assert found is None or set(found.offer) <= set(grant.offer)
