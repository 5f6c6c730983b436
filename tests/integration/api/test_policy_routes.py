"""Policy over HTTP."""

from __future__ import annotations

import pytest

from codesdk.api.routes import policy_versions
from codesdk.policy.rollout import version_service
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
    monkeypatch.setattr(
        standing.services.bundles, "of", lambda tenant, rules=None: asked.append(tenant) or real(tenant, rules)
    )
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


RULES = "version: 1\nname: mine\nrules: [{id: no, effect: deny, tool: workspace.write}]\n"
TESTS = "version: 1\ncases: [{name: n, tool: workspace.write, input: {}, expect: deny}]\n"
FILES = {"policy.yaml": RULES, "tests/t.yaml": TESTS}


def test_a_tenants_rules_are_promoted_hold_and_are_taken_back_with_a_record(author):
    assert author.post("/v1/policy/decide", json=CALL).json()["effect"] != "deny"
    made = author.post("/v1/policy/promote", json={"files": FILES, "comment": "try"})
    assert made.status_code == 200
    decided = author.post("/v1/policy/decide", json=CALL).json()
    assert (decided["effect"], decided["rules"]) == ("deny", ["tenant/no"])
    told = author.get("/v1/policy/versions").json()
    assert told["pinned"] == made.json()["version"]["hash"]
    assert [(entry["action"], entry["comment"]) for entry in told["changes"]] == [("promote", "try")]
    assert author.post("/v1/policy/rollback", json={}).json()["code"] == "NOTHING_BEFORE"
    assert author.post("/v1/policy/rollback", json={"to_files": True}).json() == {"hash": None}
    assert author.post("/v1/policy/decide", json=CALL).json()["effect"] != "deny"


@pytest.mark.parametrize(
    ("files", "code"),
    [
        ({"policy.yaml": RULES}, "POLICY_TESTS_FAILED"),
        ({"policy.yaml": RULES, "tests/t.yaml": TESTS.replace("deny", "allow")}, "POLICY_TESTS_FAILED"),
        ({"policy.yaml": "version: 1\nruls: []\n"}, "POLICY_INVALID"),
        ({"../policy.yaml": RULES}, "INVALID_REQUEST"),
    ],
)
def test_what_fails_is_not_promoted(author, files, code):
    answer = author.post("/v1/policy/promote", json={"files": files})
    assert answer.status_code == 422
    assert answer.json()["code"] == code or code == "INVALID_REQUEST"
    assert author.get("/v1/policy/versions").json()["pinned"] is None


def test_tests_that_take_too_long_together_are_ended_and_nothing_is_promoted(author, monkeypatch):
    assert author.post("/v1/policy/promote", json={"files": FILES}).status_code == 200
    assert author.post("/v1/policy/rollback", json={"to_files": True}).status_code == 200
    monkeypatch.setattr(version_service, "TESTS_LIMIT_S", 0.0)
    answer = author.post("/v1/policy/promote", json={"files": FILES})
    assert (answer.status_code, answer.json()["code"]) == (422, "POLICY_TESTS_TOO_SLOW")
    assert "codesdk policy test" in answer.json()["advice"]
    assert author.get("/v1/policy/versions").json()["pinned"] is None


def test_everybodys_rules_are_not_a_tenants_to_change(author):
    for path, body in (("promote", {"files": FILES}), ("rollback", {}), ("shadow", {"files": FILES})):
        answer = author.post(f"/v1/policy/{path}", json={"layer": "shared", **body})
        assert (answer.status_code, answer.json()["code"]) == (403, "FORBIDDEN")


def test_a_shadow_is_started_told_and_ended(author):
    made = author.post("/v1/policy/shadow", json={"files": {"policy.yaml": RULES}}).json()
    told = author.get("/v1/policy/shadow").json()
    assert (told["version"]["hash"], told["differences"]) == (made["hash"], [])
    assert author.post("/v1/policy/decide", json=CALL).json()["effect"] != "deny"
    assert author.delete("/v1/policy/shadow").json()["version"] is None


def test_a_comparison_beyond_its_bound_judges_the_newest_and_says_how_many_it_left_out(standing, request, monkeypatch):
    monkeypatch.setattr(policy_versions, "MAX_CALLS", 2)
    with standing.http(standing.key(Role.OPERATOR, tenant=request.node.name)) as client:
        subject = standing.services.directory.subject(client.post("/v1/sessions", json={}).json()["token"])
        for number in range(3):
            standing.services.pipeline.submit("workspace_write", {"path": f"f{number}", "content": ""}, subject)
        told = client.post("/v1/policy/diff", json={"files": {"policy.yaml": RULES}}).json()
    assert (told["calls"], told["left_out"]) == (2, 1)
    assert [change["input"]["path"] for change in told["changes"]] == ["f2", "f1"]


def test_recorded_calls_are_compared_under_a_candidate_and_only_the_callers_tenants(standing, request):
    name = request.node.name
    with standing.http(standing.key(Role.OPERATOR, tenant=name)) as client:
        made = client.post("/v1/sessions", json={}).json()
        subject = standing.services.directory.subject(made["token"])
        standing.services.pipeline.submit("workspace_write", {"path": "a", "content": ""}, subject)
        told = client.post("/v1/policy/diff", json={"files": {"policy.yaml": RULES}}).json()
    assert (told["calls"], told["new_allows"], told["left_out"], len(told["changes"])) == (1, 0, 0, 1)
    assert told["changes"][0]["after"] == "deny"
    with standing.http(standing.key(Role.POLICY_AUTHOR, tenant=f"{name}-other")) as client:
        assert client.post("/v1/policy/diff", json={"files": {"policy.yaml": RULES}}).json()["calls"] == 0
