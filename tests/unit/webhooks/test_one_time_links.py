from __future__ import annotations

import pytest

from codesdk.approvals import ApprovalConflict, ApprovalState, Verdict
from codesdk.tenancy.principal import Role
from codesdk.toolcalls.records.call_record import Waiting
from codesdk.webhooks import (
    LinkExpired,
    LinkInvalid,
    LinkMismatch,
    LinkUsed,
    LinkViewOnly,
    OneTimeLinkService,
    SecretCipher,
)
from tickets import minted

OTHER = "sha256:" + "1" * 64


@pytest.fixture
def tickets(stage):
    return OneTimeLinkService(stage.database, stage.ids, SecretCipher(lambda: b"k" * 32))


@pytest.fixture
def approver(stage):
    return stage.enroll("default", "ann", Role.APPROVER)[0]


def ask(stage, path="a"):
    outcome = stage.pipeline.submit("workspace.write", {"path": path, "content": "b"}, stage.subject)
    assert isinstance(outcome, Waiting)
    return stage.approval_service.find(stage.principal.tenant_id, outcome.approval_id)


@pytest.fixture
def asked(stage):
    return ask(stage)


def mint(stage, tickets, asked, approver):
    return minted(stage.writer, tickets, asked, approver)


def vote(stage, tickets, token, asked, verdict=Verdict.APPROVE, *, digest=None):
    ticket = tickets.read(token)
    said = digest or asked.digest
    return stage.pipeline.vote(
        ticket.tenant_id,
        asked.id,
        verdict,
        digest=said,
        by=ticket.principal_id,
        comment=None,
        before=lambda unit: tickets.use(unit, ticket, approval=asked.id, digest=said),
    )


def state(stage, asked):
    return stage.approval_service.find(asked.tenant_id, asked.id).state


def test_a_ticket_answers_as_its_principal(stage, tickets, asked, approver):
    token = tickets.token(mint(stage, tickets, asked, approver))
    done = vote(stage, tickets, token, asked)
    assert (done.state, done.decided_by) == (ApprovalState.APPROVED, approver.id)


def test_its_token_is_the_same_each_time_and_stored_nowhere(stage, tickets, asked, approver):
    ticket = mint(stage, tickets, asked, approver)
    token = tickets.token(ticket)
    assert tickets.token(tickets.read(token)) == token
    ((kept,),) = stage.sql("SELECT approval_tickets.id || digest || principal_id FROM approval_tickets")
    assert token.rpartition("_")[2] not in kept


def test_a_ticket_answers_once(stage, tickets, asked, approver):
    token = tickets.token(mint(stage, tickets, asked, approver))
    vote(stage, tickets, token, asked)
    before = stage.events()
    for verdict in Verdict:
        with pytest.raises(LinkUsed, match="answers once"):
            vote(stage, tickets, token, asked, verdict)
    assert stage.events() == before


def test_of_many_uses_at_once_one_counts(stage, tickets, asked, approver, at_once):
    token = tickets.token(mint(stage, tickets, asked, approver))

    def use(number):
        try:
            vote(stage, tickets, token, asked, Verdict.REJECT if number % 2 else Verdict.APPROVE)
        except LinkUsed:
            return False
        return True

    assert sum(at_once(use, 8)) == 1
    assert stage.types().count("approval.decided") == 1


def test_a_refused_vote_leaves_the_ticket_as_it_was(stage, tickets, asked, approver):
    ticket = mint(stage, tickets, asked, approver)
    token = tickets.token(ticket)
    stage.sql("UPDATE approvals SET state = 'cancelled'")
    with pytest.raises(ApprovalConflict):
        vote(stage, tickets, token, asked)
    assert tickets.read(token).used_at is None
    stage.tampered = True


def test_a_ticket_is_for_its_own_approval(stage, tickets, asked, approver):
    token = tickets.token(mint(stage, tickets, asked, approver))
    other = ask(stage, "other")
    with pytest.raises(LinkMismatch):
        vote(stage, tickets, token, other)
    assert [state(stage, each) for each in (asked, other)] == [ApprovalState.PENDING] * 2


def test_answers_that_come_in_another_order_each_reach_their_own_approval(stage, tickets, asked, approver):
    second = ask(stage, "second")
    first_token = tickets.token(mint(stage, tickets, asked, approver))
    second_token = tickets.token(mint(stage, tickets, second, approver))
    vote(stage, tickets, second_token, second, Verdict.REJECT)
    vote(stage, tickets, first_token, asked)
    assert (state(stage, asked), state(stage, second)) == (ApprovalState.APPROVED, ApprovalState.REJECTED)


def test_a_vote_on_other_content_is_refused(stage, tickets, asked, approver):
    token = tickets.token(mint(stage, tickets, asked, approver))
    with pytest.raises(LinkMismatch, match="other content"):
        vote(stage, tickets, token, asked, digest=OTHER)
    assert state(stage, asked) is ApprovalState.PENDING


def test_a_ticket_ends_with_its_approval(stage, tickets, asked, approver):
    token = tickets.token(mint(stage, tickets, asked.model_copy(update={"expires_at": asked.created_at}), approver))
    assert tickets.read(token).expired
    with pytest.raises(LinkExpired):
        vote(stage, tickets, token, asked)
    assert state(stage, asked) is ApprovalState.PENDING


@pytest.mark.parametrize(
    "wrong",
    [
        lambda token: token[:-1] + ("A" if token[-1] != "A" else "B"),
        lambda token: token.rpartition("_")[0],
        lambda token: token + "A",
        lambda token: "csdk_tkt_" + "0" * 26 + "_" + token.rpartition("_")[2],
        lambda token: token.lower(),
        lambda _: "",
        lambda _: "csdk_tkt_" + "\N{ARABIC-INDIC DIGIT ONE}" * 26 + "_" + "A" * 43,
    ],
    ids=["signature", "no signature", "longer", "unknown id", "lower case", "empty", "other digits"],
)
def test_a_token_that_is_not_whole_opens_nothing(stage, tickets, asked, approver, wrong):
    token = tickets.token(mint(stage, tickets, asked, approver))
    with pytest.raises(LinkInvalid):
        tickets.read(wrong(token))


def test_a_token_signed_with_another_key_opens_nothing(stage, tickets, asked, approver):
    ticket = mint(stage, tickets, asked, approver)
    with pytest.raises(LinkInvalid):
        tickets.read(OneTimeLinkService(stage.database, stage.ids, SecretCipher(lambda: b"x" * 32)).token(ticket))


def test_a_ticket_that_only_shows_is_read_and_decides_nothing(stage, tickets, asked, approver):
    ticket = minted(stage.writer, tickets, asked, approver, look_only=True)
    token = tickets.token(ticket)
    assert tickets.read(token) == ticket
    with pytest.raises(LinkViewOnly):
        vote(stage, tickets, token, asked)
    assert state(stage, asked) is ApprovalState.PENDING
    stage.sql("UPDATE approval_tickets SET look_only = false")
    with pytest.raises(LinkInvalid):
        tickets.read(token)


@pytest.mark.parametrize("column", ["principal_id", "approval_id", "digest", "expires_at", "tenant_id"])
def test_a_row_that_was_changed_opens_nothing(stage, tickets, asked, approver, column):
    token = tickets.token(mint(stage, tickets, asked, approver))
    other, _ = stage.enroll("other", "eve", Role.APPROVER)
    changed = {
        "principal_id": stage.principal.id,
        "approval_id": ask(stage, "other").id,
        "digest": OTHER,
        "expires_at": asked.expires_at + 3600,
        "tenant_id": other.tenant_id,
    }[column]
    stage.sql(f"UPDATE approval_tickets SET {column} = :to", to=changed)
    with pytest.raises(LinkInvalid):
        tickets.read(token)
