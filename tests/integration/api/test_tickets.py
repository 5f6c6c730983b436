"""A decision over HTTP with a ticket in place of a key."""

from __future__ import annotations

import pytest

from codesdk.tenancy.principal import Role
from tickets import minted


@pytest.fixture
def asked(standing):
    return ask(standing)


def ask(standing, command="make"):
    return standing.ask(command)


def ticket(standing, asked, principal=None, *roles):
    principal = principal or standing.principal(*(roles or (Role.APPROVER,)))[0]
    tickets = standing.services.one_time_links
    made = minted(standing.services.writer, tickets, asked, principal, principal.tenant_id)
    return principal, tickets.token(made)


def decide(standing, asked, token, *, verdict="approve", digest=None):
    with standing.http(token) as client:
        vote = {"verdict": verdict, "digest": digest or asked.digest}
        answer = client.post(f"/v1/approvals/{asked.id}/decision", json=vote)
    return answer.status_code, answer.json().get("code", answer.json().get("state"))


def state(standing, asked):
    return standing.services.approvals.find(asked.tenant_id, asked.id).state.value


def test_a_ticket_decides_as_its_principal_and_then_no_more(standing, asked):
    approver, token = ticket(standing, asked)
    standing.worker.paused = True
    try:
        assert decide(standing, asked, token) == (200, "approved")
        assert decide(standing, asked, token) == (409, "TICKET_USED")
        assert decide(standing, asked, token, verdict="reject") == (409, "TICKET_USED")
    finally:
        standing.worker.paused = False
    assert standing.services.approvals.find(asked.tenant_id, asked.id).decided_by == approver.id


def test_a_tampered_ticket_is_no_credential(standing, asked):
    _, token = ticket(standing, asked)
    assert decide(standing, asked, token[:-2]) == (401, "TICKET_INVALID")
    assert state(standing, asked) == "pending"


def test_a_ticket_opens_nothing_but_its_decision(standing, asked):
    _, token = ticket(standing, asked)
    with standing.http(token) as client:
        assert client.get(f"/v1/approvals/{asked.id}").status_code == 401
        assert client.get("/v1/approvals").status_code == 401
    assert decide(standing, ask(standing), token) == (403, "TICKET_ELSEWHERE")


def test_a_ticket_of_another_tenant_finds_nothing(standing, asked):
    stranger, _ = standing.principal(Role.APPROVER, tenant="elsewhere")
    _, token = ticket(standing, asked, stranger)
    assert decide(standing, asked, token) == (404, "APPROVAL_UNKNOWN")
    assert state(standing, asked) == "pending"


def test_a_vote_must_echo_the_digest(standing, asked):
    _, token = ticket(standing, asked)
    assert decide(standing, asked, token, digest="sha256:" + "1" * 64) == (403, "TICKET_ELSEWHERE")
    with standing.http(token) as client:
        answer = client.post(f"/v1/approvals/{asked.id}/decision", json={"verdict": "approve"})
    assert answer.json()["code"] == "INVALID_REQUEST"
    assert state(standing, asked) == "pending"


def test_a_stale_ticket_changes_nothing(standing, asked):
    _, token = ticket(standing, asked.model_copy(update={"expires_at": asked.created_at}))
    assert decide(standing, asked, token) == (403, "TICKET_EXPIRED")
    assert state(standing, asked) == "pending"


def test_a_ticket_is_worth_what_its_principal_is_now(standing, asked):
    _, weak = ticket(standing, asked, None, Role.DEVELOPER)
    assert decide(standing, asked, weak) == (403, "FORBIDDEN")
    approver, token = ticket(standing, asked)
    operator, _ = standing.principal(Role.OPERATOR)
    standing.services.administration.disable(operator, approver.id)
    assert decide(standing, asked, token) == (401, "UNAUTHENTICATED")
    assert state(standing, asked) == "pending"
