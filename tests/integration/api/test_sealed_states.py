"""The encrypted state that a client of the newer era carries between the rounds of a question: valid once, for its
purpose.
"""

from __future__ import annotations

import asyncio
import json
import time
from types import SimpleNamespace

import httpx2
import pytest
from mcp.server import request_state
from sqlalchemy import text as sql

from codesdk.domain.tool_results import ToolResult
from codesdk.mcphost.host import STATE_TTL_S
from codesdk.tenancy.principal import Role

MAKE = {"command": "make"}
YES, NO = {"decision": "approve"}, {"decision": "reject", "comment": "Not now."}
INVALID = -32602


@pytest.fixture(scope="module")
def trusting(tmp_path_factory, helpers):
    """A stack whose operator trusts the agents' own hosts with a person's answer."""
    with helpers.running(tmp_path_factory.mktemp("trusting"), 1.0, trust_clients=True) as built:
        built.worker.answer = lambda _: ToolResult(text="made", is_error=True)
        with httpx2.Client(base_url=built.url, timeout=30) as built.sender:
            yield built


@pytest.fixture
def stack(trusting):
    trusting.worker.ran.clear()
    return trusting


class Rounds:
    """A client of the newer era, request by request."""

    def __init__(self, stack, token, asked="form"):
        self._http = stack.sender
        self._token = token
        self._asked = asked

    def request(self, *, name="workspace_exec", arguments=MAKE, **more):
        """The message and its headers."""
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {"elicitation": {self._asked: {}}},
        }
        params = {"name": name, "arguments": arguments, "_meta": meta, **more}
        headers = {
            "Authorization": f"Bearer {self._token}",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": "tools/call",
            "Mcp-Name": name,
        }
        return {"json": {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}, "headers": headers}

    def send(self, **more):
        """One request's answer."""
        return self._http.post("/mcp", **self.request(**more))

    def first(self):
        """Ask, and keep the state that comes."""
        told = said(self.send())
        assert told["result"]["resultType"] == "input_required", told
        return told["result"]["requestState"]

    def second(self, state, content=YES, **more):
        """Answer with that state: the details of the result, or the error's code."""
        return outcome(self.send(**answering(state, content), **more))


def answering(state, content):
    answer = {"action": "accept", "content": content} if content else {"action": "cancel"}
    return {"requestState": state, "inputResponses": {"approval": answer}}


def said(answer):
    return json.loads(answer.text[answer.text.index("{") :].splitlines()[0])


def outcome(answer):
    told = said(answer)
    return told["error"]["code"] if "error" in told else told["result"]["_meta"]["codesdk/call"]


@pytest.fixture
def asked(stack):
    """A question that was asked: its session's user, the session, its client and its state."""
    principal, _ = stack.principal()
    session, token = stack.open_for(principal)
    client = Rounds(stack, token)
    return SimpleNamespace(principal=principal, session=session, client=client, state=client.first())


@pytest.mark.parametrize("again", [YES, NO, None])
def test_a_state_that_comes_again_after_a_yes_runs_nothing_and_gets_the_same_answer(stack, asked, again):
    first = asked.client.second(asked.state)
    assert (first["status"], stack.worker.ran) == ("failed", ["workspace.exec"])
    before = stack.types(asked.session)
    assert [asked.client.second(asked.state, again) for _ in range(2)] == [first, first]
    assert stack.worker.ran == ["workspace.exec"]
    assert stack.types(asked.session) == before


def test_a_yes_after_a_no_changes_nothing(stack, asked):
    first = asked.client.second(asked.state, NO)
    assert first["code"] == "REJECTED_BY_APPROVER"
    assert asked.client.second(asked.state, YES) == first
    assert stack.worker.ran == []


def test_one_state_that_comes_many_times_at_once_runs_its_call_once(stack, asked, helpers):
    async def go():
        async with httpx2.AsyncClient(timeout=30) as http:
            sent = asked.client.request(**answering(asked.state, YES))
            return await asyncio.gather(*(http.post(stack.mcp_url, **sent) for _ in range(12)))

    found = [outcome(answer) for answer in helpers.within(go())]
    assert {(each["status"], each["tool_call_id"]) for each in found} == {("failed", found[0]["tool_call_id"])}
    assert stack.worker.ran == ["workspace.exec"]
    assert stack.types(asked.session).count("tool.call.started") == 1


def test_a_yes_to_a_question_that_is_over_revives_nothing(stack, asked):
    with stack.services.database.writer.begin() as connection:
        connection.execute(sql("UPDATE approvals SET expires_at = 1 WHERE session_id = :s"), {"s": asked.session.id})
    stack.services.approval_flow.expire_overdue()
    assert asked.client.second(asked.state)["code"] == "APPROVAL_EXPIRED"
    assert stack.worker.ran == []


def test_a_yes_to_a_call_that_was_withdrawn_revives_nothing(stack, asked):
    place = (asked.session.tenant_id, asked.session.id)
    stack.services.pipeline.cancel(*place, stack.pending(asked.session).tool_call_id, "it is not wanted")
    assert asked.client.second(asked.state)["status"] == "denied"
    assert stack.worker.ran == []


@pytest.mark.parametrize(
    "more",
    [
        {"arguments": {"command": "make install"}},
        {"arguments": {}},
        {"name": "workspace_write", "arguments": {"path": "a", "content": "b"}},
        {"name": "workspace_read", "arguments": MAKE},
        {"name": "collect_result", "arguments": MAKE},
    ],
)
def test_a_state_is_good_for_the_very_call_that_it_was_given_for(stack, asked, more):
    assert asked.client.second(asked.state, **more) == INVALID
    assert stack.worker.ran == []
    assert stack.pending(asked.session)


def test_a_state_is_good_in_its_own_session_alone(stack, asked):
    mine, token = stack.open_for(asked.principal)
    assert Rounds(stack, token).second(asked.state) == INVALID
    assert stack.types(mine) == ["session.created"]
    assert stack.pending(asked.session)


def test_a_state_that_was_changed_anywhere_is_none(stack, asked):
    state = asked.state
    places = range(0, len(state), max(1, len(state) // 24))
    changed = [state[:at] + ("A" if state[at] != "A" else "B") + state[at + 1 :] for at in places]
    odd = [state[:-1], state + "A", state + "=", state.removeprefix("v1."), "v1.", "", "{}", "x" * 100_000, "é", "\x00"]
    assert {asked.client.second(each) for each in [*changed, *odd]} == {INVALID}
    for other in (7, True, [state], {"state": state}):
        assert asked.client.second(other) == INVALID
    assert stack.worker.ran == []


@pytest.mark.parametrize("later", [STATE_TTL_S + 1, -3600])
def test_a_state_is_good_for_its_time_alone(stack, asked, monkeypatch, later):
    monkeypatch.setattr(request_state, "time", SimpleNamespace(time=lambda: time.time() + later))
    assert asked.client.second(asked.state) == INVALID
    assert stack.worker.ran == []


def test_a_state_ends_with_its_session(stack, asked):
    stack.services.sessions.close(asked.session.tenant_id, asked.session.id)
    answer = asked.client.send(**answering(asked.state, YES))
    assert answer.status_code == 401
    assert stack.worker.ran == []


@pytest.mark.parametrize(
    "responses",
    [
        {},
        {"other": {"action": "accept", "content": YES}},
        {"approval": {"action": "accept"}},
        {"approval": {"action": "accept", "content": {"decision": ["approve"]}}},
        {"approval": {"action": "decline", "content": YES}},
    ],
)
def test_a_state_with_no_answer_that_counts_decides_nothing(stack, asked, responses):
    told = outcome(asked.client.send(requestState=asked.state, inputResponses=responses))
    assert told == INVALID or told["code"] == "APPROVAL_PENDING"
    assert stack.pending(asked.session)
    assert stack.worker.ran == []


def test_the_state_of_a_question_with_a_link_brings_no_vote(stack):
    session, token = stack.open_session()
    client = Rounds(stack, token, "url")
    assert client.second(client.first())["code"] == "APPROVAL_PENDING"
    assert stack.pending(session)


def test_a_state_is_no_vote_of_somebody_who_may_not_approve_any_more(stack, asked):
    with stack.services.database.writer.begin() as connection:
        given = {"roles": json.dumps([Role.DEVELOPER]), "id": asked.principal.id}
        connection.execute(sql("UPDATE principals SET roles = :roles WHERE id = :id"), given)
    assert asked.client.second(asked.state)["code"] == "APPROVAL_PENDING"
    assert stack.pending(asked.session)
