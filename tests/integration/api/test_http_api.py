"""Every route of the API over real HTTP."""

from __future__ import annotations

import hashlib

import pytest

from codesdk.domain.tool_results import ToolResult
from codesdk.storage.schema import hosts
from codesdk.tenancy.principal import Role
from databases import ON_BOTH


@pytest.fixture
def stack(database_kind, request, monkeypatch):
    standing = request.getfixturevalue("standing" if database_kind == "sqlite" else "standing_on_a_server")
    monkeypatch.setattr(standing.worker, "answer", standing.worker.answer)  # whatever a test sets ends with it
    return standing


@pytest.fixture
def operator(stack, request):
    """An operator of a tenant that no other test has."""
    with stack.http(stack.key(Role.OPERATOR, tenant=request.node.name)) as client:
        yield client


@pytest.fixture
def stranger(stack, request):
    """An operator of another tenant."""
    with stack.http(stack.key(Role.OPERATOR, tenant=f"not {request.node.name}")) as client:
        yield client


def asked_call(stack, session, command="make"):
    """A call of that session that waits for a person."""
    subject = stack.services.directory.subject(session["token"])
    outcome = stack.services.pipeline.submit("workspace_exec", {"command": command}, subject)
    return outcome.identity.tool_call_id, outcome.approval_id


def opened(client, **wish):
    answer = client.post("/v1/sessions", json=wish)
    assert answer.status_code == 201
    return answer.json()


def problem(answer, status, code):
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    body = answer.json()
    assert (body["status"], body["code"]) == (status, code)
    assert {"type", "title", "detail", "retryable", "advice", "details"} <= set(body)
    return body


def test_health_is_open(stack):
    with stack.http() as client:
        answer = client.get("/health")
    assert (answer.status_code, answer.json()["status"]) == (200, "ok")


@ON_BOTH
def test_a_session_is_opened_listed_read_and_closed(stack, operator, helpers):
    made = opened(operator, permission_mode="ask", labels={"team": "red"})
    session_id = made["session"]["id"]
    assert made["mcp_url"] == stack.mcp_url
    assert made["session"]["permission_mode"] == "ask"

    async def go():
        async with stack.client(made["token"], "auto") as client:
            return await client.list_tools()

    assert helpers.within(go()).tools
    assert [s["id"] for s in operator.get("/v1/sessions").json()["sessions"]] == [session_id]
    assert operator.get(f"/v1/sessions/{session_id}").json()["state"] == "open"
    assert operator.delete(f"/v1/sessions/{session_id}").json()["state"] == "closed"
    assert operator.delete(f"/v1/sessions/{session_id}").status_code == 200


def test_the_token_is_in_no_other_answer_and_in_no_event(operator):
    made = opened(operator)
    session_id = made["session"]["id"]
    texts = [
        operator.get("/v1/sessions").text,
        operator.get(f"/v1/sessions/{session_id}").text,
        operator.get(f"/v1/sessions/{session_id}/events").text,
    ]
    assert not any(made["token"] in text for text in texts)


def test_where_no_worker_has_the_image_the_answer_says_what_to_do(stack, operator):
    def offer(images):
        with stack.services.database.writer.begin() as connection:
            connection.execute(hosts.update().values(images=images))

    offer("{}")
    answer = operator.post("/v1/sessions", json={})
    offer('{"base": "sha256:image"}')
    body = problem(answer, 503, "NO_HOST")
    assert body["retryable"]
    assert "codesdk up" in body["advice"]


@ON_BOTH
def test_events_come_in_pages(stack, operator):
    session = opened(operator)
    asked_call(stack, session)
    path = f"/v1/sessions/{session['session']['id']}/events"
    first = operator.get(path, params={"limit": 2}).json()
    rest = operator.get(path, params={"after": first["next"]}).json()
    assert [event["seq"] for event in first["events"] + rest["events"]] == [1, 2, 3, 4]
    assert (rest["head"], operator.get(path, params={"after": 4}).json()["events"]) == (4, [])
    assert "resync" not in rest
    foreign = operator.get(path, params={"after": "req_other-1"}).json()
    assert foreign["events"][0]["seq"] == 1
    assert "epoch" in foreign["resync"]


@ON_BOTH
def test_an_approval_is_found_read_and_given(stack, operator):
    session = opened(operator)
    session_id = session["session"]["id"]
    _, approval_id = asked_call(stack, session)
    stack.worker.answer = lambda _: ToolResult(text="made", is_error=True, code="NONZERO_EXIT")
    listed = operator.get("/v1/approvals", params={"state": "pending", "session_id": session_id}).json()["approvals"]
    assert [approval["id"] for approval in listed] == [approval_id]
    shown = operator.get(f"/v1/approvals/{approval_id}").json()
    assert shown["shown"]["input"] == {"command": "make"}
    vote = {"verdict": "approve", "digest": shown["digest"], "comment": "fine"}
    decided = operator.post(f"/v1/approvals/{approval_id}/decision", json=vote)
    assert (decided.status_code, decided.json()["state"]) == (200, "approved")
    assert operator.post(f"/v1/approvals/{approval_id}/decision", json=vote).status_code == 200


@ON_BOTH
def test_a_vote_on_something_else_or_after_another_is_a_conflict(stack, operator):
    session = opened(operator)
    _, approval_id = asked_call(stack, session)
    path = f"/v1/approvals/{approval_id}"
    digest = operator.get(path).json()["digest"]
    wrong = {"verdict": "approve", "digest": "sha256:" + "0" * 64}
    problem(operator.post(f"{path}/decision", json=wrong), 409, "APPROVAL_CONFLICT")
    assert operator.get(path).json()["state"] == "pending"
    operator.post(f"{path}/decision", json={"verdict": "reject", "digest": digest})
    late = operator.post(f"{path}/decision", json={"verdict": "approve", "digest": digest})
    body = problem(late, 409, "APPROVAL_CONFLICT")
    assert body["details"]["state"] == "rejected"


@ON_BOTH
def test_a_call_can_be_looked_at_and_cancelled(stack, operator):
    session = opened(operator)
    call_id, approval_id = asked_call(stack, session)
    path = f"/v1/sessions/{session['session']['id']}/calls/{call_id}"
    waiting = operator.get(path).json()
    assert (waiting["state"], waiting["approval_id"]) == ("waiting_for_tool_decision", approval_id)
    done = operator.post(f"{path}/cancel").json()
    assert (done["cancelled"], done["call"]["state"]) == (True, "denied")
    again = operator.post(f"{path}/cancel").json()
    assert (again["cancelled"], again["call"]["result"]["code"]) == (False, "CANCELLED")


def test_a_result_can_be_collected_later(stack, operator, helpers):
    session = opened(operator)
    subject = stack.services.directory.subject(session["token"])
    outcome = stack.services.pipeline.submit("workspace_read", {"path": "a"}, subject)
    path = f"/v1/sessions/{session['session']['id']}/calls/{outcome.identity.tool_call_id}"
    helpers.eventually(lambda: operator.get(path).json()["state"] == "completed")
    assert operator.get(path).json()["result"]["text"] == "hello\n"


@ON_BOTH
def test_an_artifact_comes_back_as_it_went_in(operator):
    content = bytes(range(256)) * 5000
    made = operator.post(
        "/v1/artifacts",
        params={"name": "naïve ; x.tar"},
        content=content,
        headers={"Content-Type": "application/x-tar"},
    )
    assert made.status_code == 201
    assert made.json()["content_hash"] == "sha256:" + hashlib.sha256(content).hexdigest()
    answer = operator.get(f"/v1/artifacts/{made.json()['id']}")
    assert answer.content == content
    assert answer.headers["content-type"] == "application/x-tar"
    assert answer.headers["content-disposition"] == "attachment; filename*=UTF-8''na%C3%AFve%20%3B%20x.tar"
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_a_label_that_is_no_unicode_text_is_named(operator):
    for labels in (b'{"a": "\\ud800"}', b'{"\\ud800": "a"}'):
        sent = operator.post(
            "/v1/sessions", content=b'{"labels": ' + labels + b"}", headers={"Content-Type": "application/json"}
        )
        problem(sent, 422, "INVALID_REQUEST")


def test_a_json_body_that_is_too_large_is_refused(operator):
    labels = {"a": "x" * (2 * 1024 * 1024)}
    problem(operator.post("/v1/sessions", json={"labels": labels}), 413, "BODY_TOO_LARGE")


def test_a_session_can_start_from_an_artifact_but_only_of_its_own_tenant(operator, stranger):
    artifact = operator.post("/v1/artifacts", content=b"tar").json()["id"]
    assert opened(operator, seed_artifact=artifact)
    problem(stranger.post("/v1/sessions", json={"seed_artifact": artifact}), 404, "ARTIFACT_UNKNOWN")


def test_tools_are_described(operator):
    tools = {tool["name"]: tool for tool in operator.get("/v1/tools").json()["tools"]}
    assert tools["workspace.exec"] | {"enabled": True, "wire_name": "workspace_exec"} == tools["workspace.exec"]
    assert tools["workspace.read"]["input_schema"]["required"] == ["path"]


@ON_BOTH
def test_another_tenants_ids_do_not_exist(stack, operator, stranger):
    session = opened(operator)
    session_id = session["session"]["id"]
    call_id, approval_id = asked_call(stack, session)
    digest = operator.get(f"/v1/approvals/{approval_id}").json()["digest"]
    artifact = operator.post("/v1/artifacts", content=b"x").json()["id"]
    vote = {"verdict": "approve", "digest": digest}
    problem(stranger.get(f"/v1/sessions/{session_id}"), 404, "SESSION_UNKNOWN")
    problem(stranger.delete(f"/v1/sessions/{session_id}"), 404, "SESSION_UNKNOWN")
    problem(stranger.get(f"/v1/sessions/{session_id}/events"), 404, "SESSION_UNKNOWN")
    stream = {"Accept": "text/event-stream"}
    problem(stranger.get(f"/v1/sessions/{session_id}/events", headers=stream), 404, "SESSION_UNKNOWN")
    problem(stranger.get(f"/v1/sessions/{session_id}/calls/{call_id}"), 404, "CALL_UNKNOWN")
    problem(stranger.post(f"/v1/sessions/{session_id}/calls/{call_id}/cancel"), 404, "CALL_UNKNOWN")
    problem(stranger.get(f"/v1/approvals/{approval_id}"), 404, "APPROVAL_UNKNOWN")
    problem(stranger.post(f"/v1/approvals/{approval_id}/decision", json=vote), 404, "APPROVAL_UNKNOWN")
    problem(stranger.get(f"/v1/artifacts/{artifact}"), 404, "ARTIFACT_UNKNOWN")
    assert stranger.head(f"/v1/artifacts/{artifact}").status_code == 404
    problem(stranger.delete(f"/v1/artifacts/{artifact}"), 404, "ARTIFACT_UNKNOWN")
    assert stranger.get("/v1/artifacts").json() == {"artifacts": []}
    problem(stranger.post("/v1/artifacts", params={"session_id": session_id}, content=b"x"), 404, "SESSION_UNKNOWN")
    assert stranger.get("/v1/sessions").json() == {"sessions": []}
    assert stranger.get("/v1/approvals").json() == {"approvals": []}
    assert stranger.get("/v1/approvals", params={"session_id": session_id}).json() == {"approvals": []}
    assert operator.get(f"/v1/approvals/{approval_id}").json()["state"] == "pending"


def test_a_call_of_another_session_does_not_exist_under_this_one(stack, operator):
    session, other = opened(operator), opened(operator)
    call_id, _ = asked_call(stack, session)
    problem(operator.get(f"/v1/sessions/{other['session']['id']}/calls/{call_id}"), 404, "CALL_UNKNOWN")


ALLOWED = {
    ("POST", "/v1/sessions"): {Role.DEVELOPER, Role.OPERATOR},
    ("GET", "/v1/sessions"): {Role.DEVELOPER, Role.OPERATOR, Role.APPROVER, Role.AUDITOR},
    ("GET", "/v1/approvals"): {Role.DEVELOPER, Role.OPERATOR, Role.APPROVER, Role.AUDITOR},
    ("POST", "/v1/approvals/x/decision"): {Role.APPROVER, Role.OPERATOR},
    ("DELETE", "/v1/sessions/x"): {Role.DEVELOPER, Role.OPERATOR},
    ("POST", "/v1/artifacts"): {Role.DEVELOPER, Role.OPERATOR},
    ("GET", "/v1/artifacts"): {Role.DEVELOPER, Role.OPERATOR, Role.APPROVER, Role.AUDITOR},
    ("DELETE", "/v1/artifacts/x"): {Role.OPERATOR},
    ("GET", "/v1/tools"): set(Role),
}


@pytest.mark.parametrize("role", list(Role))
def test_each_role_opens_its_routes_and_no_others(stack, role):
    with stack.http(stack.key(role)) as client:
        answers = {route: client.request(route[0], route[1]).status_code for route in ALLOWED}
    assert {route for route, status in answers.items() if status != 403} == {
        r for r, roles in ALLOWED.items() if role in roles
    }


@pytest.mark.parametrize("authorization", [None, "", "Bearer", "Bearer wrong", "Basic eDp5", "Bearer csdk_ses_x"])
def test_without_a_good_key_nothing_is_told(stack, authorization):
    headers = {"Authorization": authorization} if authorization is not None else {}
    with stack.http() as client:
        answers = [client.request(method, path, headers=headers) for method, path in ALLOWED]
    for answer in answers:
        problem(answer, 401, "UNAUTHENTICATED")
        assert answer.headers["www-authenticate"].startswith("Bearer")


def test_a_wrong_input_is_named_with_what_was_expected_and_without_its_value(operator):
    answer = operator.post("/v1/sessions", json={"permission_mode": "s3cret", "colour": "red"})
    body = problem(answer, 422, "INVALID_REQUEST")
    assert {field["field"] for field in body["details"]["fields"]} == {"body permission_mode", "body colour"}
    assert "'ask', 'auto' or 'yolo'" in body["detail"]
    assert "s3cret" not in answer.text


@pytest.mark.parametrize("content", [b"{", b"", b"[]", b"\xff"])
def test_a_body_that_is_no_json_object_is_a_problem(operator, content):
    answer = operator.post("/v1/sessions", content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422)
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_bad_cursor_or_state_is_named(operator):
    session_id = opened(operator)["session"]["id"]
    answer = operator.get(f"/v1/sessions/{session_id}/events", params={"after": "minus one"})
    assert "after" in problem(answer, 422, "INVALID_REQUEST")["detail"]
    assert "state" in problem(operator.get("/v1/approvals", params={"state": "lost"}), 422, "INVALID_REQUEST")["detail"]


def test_what_does_not_exist_is_a_problem_too(operator):
    problem(operator.get("/v1/nothing"), 404, "NOT_FOUND")
    problem(operator.put("/v1/sessions"), 405, "METHOD_NOT_ALLOWED")


def test_a_foreign_host_name_is_refused_everywhere(stack):
    with stack.http(stack.key()) as client:
        for path in ("/health", "/v1/sessions", "/nothing", "/openapi.json"):
            problem(client.get(path, headers={"Host": "evil.example"}), 421, "WRONG_HOST")


def test_a_defect_shows_no_internals(stack, operator, monkeypatch, caplog):
    def broken(*_args):
        raise KeyError("secret-of-ours")

    monkeypatch.setattr(stack.services.sessions, "listing", broken)
    answer = operator.get("/v1/sessions")
    problem(answer, 500, "INTERNAL")
    assert "secret-of-ours" not in answer.text
    assert "secret-of-ours" in caplog.text


def test_the_openapi_document_knows_every_route(operator):
    document = operator.get("/openapi.json").json()
    assert "/v1/approvals/{approval_id}/decision" in document["paths"]
    assert "/mcp" not in document["paths"]


@pytest.mark.parametrize("path", ["/v1/sessions", "/v1/approvals", "/v1/artifacts", "/v1/tools", "/v1/webhooks"])
def test_a_parameter_that_a_route_does_not_have_is_refused_and_not_ignored(operator, path):
    found = problem(operator.get(path, params={"colour": "red"}), 422, "INVALID_REQUEST")
    assert "colour" in found["detail"]
    assert found["details"]["fields"][0]["field"] == "colour"


def test_a_parameter_that_is_spelled_wrong_is_told_with_the_right_one(operator):
    found = problem(operator.get("/v1/approvals", params={"statee": "pending"}), 422, "INVALID_REQUEST")
    assert "statee" in found["detail"]
    assert "Did you mean state?" in str(found)


def test_unknown_parameters_are_not_repeated_without_end(operator):
    names = {f"n{number}{'x' * 100}": "" for number in range(200)}
    answer = operator.get("/v1/sessions", params=names)
    problem(answer, 422, "INVALID_REQUEST")
    assert len(answer.text) < 3_000


def test_parameters_are_looked_at_for_known_callers_only(stack):
    with stack.http("csdk_key_unknown") as nobody:
        problem(nobody.get("/v1/sessions", params={"colour": "red"}), 401, "UNAUTHENTICATED")


def test_every_parameter_that_the_description_names_is_taken(operator):
    for path, item in operator.get("/openapi.json").json()["paths"].items():
        for method, operation in item.items():
            named = {each["name"]: "1" for each in operation.get("parameters", []) if each["in"] == "query"}
            if named and path.startswith("/v1/") and "events" not in path:
                place = path.format_map(
                    dict.fromkeys(("session_id", "tenant_id", "artifact_id", "endpoint_id"), "none")
                )
                answer = operator.request(method, place, params=named)
                assert "There is no query parameter" not in answer.text, (method, path)
