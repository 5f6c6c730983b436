"""Policy over HTTP."""

from __future__ import annotations

import pytest

from codesdk.tenancy.principal import Role

CALL = {"tool": "workspace.write", "input": {"path": "a", "content": ""}}


@pytest.fixture
def author(standing, request):
    with standing.http(standing.key(Role.POLICY_AUTHOR, tenant=request.node.name)) as client:
        yield client


def test_what_is_in_force_is_told_with_its_rules(author, standing):
    told = author.get("/v1/policy").json()
    assert told["hash"].startswith("sha256:")
    assert {rule["id"] for rule in told["rules"]} == {rule.id for rule in standing.services.bundles.shared.bundle.rules}
    assert told["problems"] == {}


def test_a_call_is_decided_and_explained_without_a_trace_in_any_record(author):
    decided = author.post("/v1/policy/decide", json=CALL)
    explained = author.post("/v1/policy/explain", json={**CALL, "mode": "ask"})
    assert (decided.status_code, explained.status_code) == (200, 200)
    assert decided.json()["effect"] in ("allow", "ask", "deny")
    assert len(explained.json()["trace"]) == len(author.get("/v1/policy").json()["rules"])


def test_another_tenant_cannot_be_asked_about(author, standing, monkeypatch):
    asked = []
    real = standing.services.bundles.of
    monkeypatch.setattr(standing.services.bundles, "of", lambda tenant: asked.append(tenant) or real(tenant))
    author.post("/v1/policy/decide", json={**CALL, "session": {"tenant": "ten_somebody_else"}})
    assert "ten_somebody_else" not in asked
    assert len(set(asked)) == 1


@pytest.mark.parametrize("body", [{}, {"tool": ""}, {"tool": "x", "inputs": {}}, {"tool": "x", "mode": "never"}])
def test_what_is_no_call_is_refused_with_the_field(author, body):
    answer = author.post("/v1/policy/decide", json=body)
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"


def test_an_unknown_tool_is_denied_with_the_nearest_name(author):
    told = author.post("/v1/policy/decide", json={"tool": "workspace.wirte"}).json()
    assert (told["effect"], "workspace.write" in told["reason"]) == ("deny", True)


def test_a_developer_may_ask_and_not_read_the_rules(standing, request):
    with standing.http(standing.key(Role.DEVELOPER, tenant=request.node.name)) as client:
        assert client.post("/v1/policy/decide", json=CALL).status_code == 200
        assert client.post("/v1/policy/explain", json=CALL).status_code == 403
        assert client.get("/v1/policy").status_code == 403
