"""Waiting callers: no client is left hanging, none runs a call twice, and only the right people decide.

The unusual clients behave as measured of real ones: Qwen Code drops its connection at its own limit and makes the call
again, up to three times; OpenCode and Kimi Code cancel a call that was answered; codex-acp declares elicitation, and
never answers.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager

import httpx2
import mcp_types as types
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from codesdk.api import app
from codesdk.approvals import Verdict
from codesdk.domain.tool_results import ToolResult
from codesdk.tenancy.principal import Role

ERAS = ["legacy", "auto"]
MAKE = {"command": "make"}


def details(result):
    return result.meta["codesdk/call"]


@pytest.fixture(scope="module")
def trusting(tmp_path_factory, helpers):
    """A stack whose operator trusts the agents' own hosts with a person's answer; it has no pages, so forms are shown."""
    with pytest.MonkeyPatch.context() as patched:
        # The official client says that it shows links as well as forms.
        patched.setattr(app, "ApprovalLinks", lambda *_, **__: lambda *_: None)
        with helpers.running(tmp_path_factory.mktemp("trusting"), 5.0, trust_clients=True) as built:
            patched.undo()
            yield built


@pytest.fixture
def paged(tmp_path, helpers):
    """The same with its pages."""
    with helpers.running(tmp_path, 5.0, trust_clients=True) as built:
        built.worker.answer = made
        yield built


@pytest.fixture
def stack(trusting):
    """The same, with a worker that has seen nothing and answers at once."""
    trusting.worker.ran.clear()
    trusting.worker.cancelled.clear()
    trusting.worker.gate.set()
    trusting.worker.answer = made
    yield trusting
    trusting.worker.gate.set()


def made(_claimed):
    return ToolResult(text="made", is_error=True)


@asynccontextmanager
async def asked_client(stack, token, mode, answer=None, **headers):
    """The official client, with somebody who answers questions."""
    headers = {"Authorization": f"Bearer {token}", **headers}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=30) as http,
        Client(
            streamable_http_client(stack.mcp_url, http_client=http), mode=mode, elicitation_callback=answer
        ) as client,
    ):
        yield client


def makes(stack, helpers, token, mode, answer=None, **headers):
    async def go():
        async with asked_client(stack, token, mode, answer, **headers) as client:
            return await client.call_tool("workspace_exec", MAKE)

    return helpers.within(go())


class Person:
    """Answers every question in the same way, and keeps what it was asked."""

    def __init__(self, action, **content):
        self.action = action
        self.content = content or None
        self.asked = []

    async def __call__(self, _context, params):
        self.asked.append(params)
        return types.ElicitResult(action=self.action, content=self.content)


class TestWhoIsAsked:
    @pytest.mark.parametrize("mode", ERAS)
    def test_a_yes_in_the_form_runs_the_call_and_is_the_users_vote(self, stack, helpers, mode):
        session, token = stack.open_session()
        person = Person("accept", decision="approve", comment="go on")
        result = makes(stack, helpers, token, mode, person)
        assert result.content[0].text == "made"
        (asked,) = person.asked
        assert all(part in asked.message for part in ("workspace.exec", "make", "exec", "Commands are asked about."))
        (approval,) = stack.services.approvals.listing(session.tenant_id, None, session.id)
        assert (approval.state, approval.decided_by, approval.comment) == ("consumed", session.principal_id, "go on")
        assert stack.types(session).count("tool.call.requested") == 1

    @pytest.mark.parametrize("mode", ERAS)
    def test_a_client_is_asked_about_a_call_with_files_when_its_worker_has_looked_at_them(self, stack, helpers, mode):
        session, token = stack.open_session()
        person = Person("accept", decision="approve")
        stack.worker.sees.clear()

        async def go():
            async with asked_client(stack, token, mode, person) as client:
                call = asyncio.create_task(client.call_tool("workspace_exec", {"command": "bash make.sh"}))
                for _ in range(1000):
                    if "tool.call.policy_evaluated" in stack.types(session):
                        break
                    await asyncio.sleep(0.02)
                assert person.asked == []
                assert stack.services.approvals.listing(session.tenant_id, None, session.id) == []
                stack.worker.sees.set()
                return await call

        try:
            result = helpers.within(go())
        finally:
            stack.worker.sees.set()
        assert result.content[0].text == "made"
        assert len(person.asked) == 1
        (approval,) = stack.services.approvals.listing(session.tenant_id, None, session.id)
        assert [file["path"] for file in approval.shown["bound"]["files"]] == ["make.sh"]

    @pytest.mark.parametrize("mode", ERAS)
    def test_a_no_in_the_form_reaches_the_agent(self, stack, helpers, mode):
        _, token = stack.open_session()
        result = makes(stack, helpers, token, mode, Person("accept", decision="reject", comment="Use ninja."))
        assert details(result)["code"] == "REJECTED_BY_APPROVER"
        assert "Use ninja." in result.content[0].text
        assert stack.worker.ran == []

    @pytest.mark.parametrize("mode", ERAS)
    @pytest.mark.parametrize(
        "person",
        [Person("decline"), Person("cancel"), Person("accept"), Person("accept", decision="yes please")],
        ids=["declined", "cancelled", "empty", "nonsense"],
    )
    def test_a_client_that_does_not_send_the_form_decides_nothing(self, stack, helpers, mode, person):
        session, token = stack.open_session()
        result = makes(stack, helpers, token, mode, person, **{"CodeSDK-Wait": "0.5"})
        assert details(result)["code"] == "APPROVAL_PENDING"
        assert stack.pending(session)

    @pytest.mark.parametrize("mode", ERAS)
    def test_a_user_who_may_not_approve_is_not_asked(self, stack, helpers, mode):
        principal, _ = stack.principal(Role.DEVELOPER)
        _, token = stack.open_for(principal)
        person = Person("accept", decision="approve")
        result = makes(stack, helpers, token, mode, person, **{"CodeSDK-Wait": "0.5"})
        assert (details(result)["code"], person.asked) == ("APPROVAL_PENDING", [])

    def test_a_client_that_never_answers_the_question_is_answered_in_time_all_the_same(self, stack, helpers):
        session, token = stack.open_session()

        async def silent(_context, _params):
            await asyncio.sleep(60)

        result = makes(stack, helpers, token, "legacy", silent, **{"CodeSDK-Wait": "0.5"})
        assert details(result)["code"] == "APPROVAL_PENDING"
        assert stack.pending(session)

    @pytest.mark.parametrize("mode", ERAS)
    def test_another_persons_answer_ends_the_wait_for_the_form(self, stack, helpers, mode):
        session, token = stack.open_session()

        async def elsewhere(_context, _params):
            vote(stack, session, Verdict.APPROVE)
            if mode == "legacy":
                await asyncio.sleep(60)
            return types.ElicitResult(action="accept", content={"decision": "reject"})

        assert makes(stack, helpers, token, mode, elsewhere).content[0].text == "made"

    @pytest.mark.parametrize("mode", ERAS)
    def test_a_client_that_opens_links_gets_the_approvals_page_and_only_its_answer_counts(self, paged, helpers, mode):
        stack = paged
        session, token = stack.open_session()
        asked = []

        async def opens(_context, params):
            if params.mode == "url":
                asked.append(params.url)
                asyncio.get_running_loop().call_later(0.3, answer, params.url)
            return types.ElicitResult(action="accept", content={"decision": "reject"})

        def answer(url):
            form = {"verdict": "approve", "digest": stack.pending(session).digest, "comment": "seen on the page"}
            httpx2.post(url, data=form, headers={"Origin": stack.url}, timeout=10, trust_env=False)

        result = makes(stack, helpers, token, mode, opens)
        (approval,) = stack.services.approvals.listing(session.tenant_id, None, session.id)
        # The official client says that it shows both forms and links, so the link comes first.
        assert [url.startswith(f"{stack.url}/approve/") for url in asked] == [True]
        assert result.content[0].text == "made"
        assert (approval.decided_by, approval.comment) == (session.principal_id, "seen on the page")


@pytest.mark.parametrize("mode", ERAS)
def test_where_hosts_are_not_trusted_the_page_is_shown_and_its_link_decides_nothing(standing, helpers, mode):
    session, token = standing.open_session()
    person = Person("accept", decision="approve")
    result = makes(standing, helpers, token, mode, person, **{"CodeSDK-Wait": "4"})
    assert details(result)["code"] == "APPROVAL_PENDING"
    (asked,) = person.asked
    assert asked.mode == "url"
    waiting = standing.pending(session)
    with standing.http() as client:
        assert "Your own API key" in client.get(asked.url).text
        form = {"verdict": "approve", "digest": waiting.digest}
        assert client.post(asked.url, data=form, headers={"Origin": standing.url}).status_code == 403
    assert standing.pending(session).id == waiting.id


class TestTheTimeThatAClientHas:
    def test_a_run_that_is_longer_is_answered_in_time_goes_on_and_is_collected(self, stack, helpers):
        session, token = stack.open_session()
        stack.worker.gate.clear()

        async def go():
            async with asked_client(stack, token, "auto", **{"CodeSDK-Wait": "0.5"}) as client:
                early = await client.call_tool("workspace_read", {"path": "a"})
                again = await client.call_tool("workspace_read", {"path": "a"})
                stack.worker.gate.set()
                late = await client.call_tool(details(early)["collect"]["tool"], details(early)["collect"]["arguments"])
                return early, again, late

        early, again, late = helpers.within(go())
        assert [details(early)["code"], details(again)["code"]] == ["CALL_RUNNING"] * 2
        assert details(early)["tool_call_id"] == details(again)["tool_call_id"] == details(late)["tool_call_id"]
        assert (details(late)["status"], stack.worker.ran) == ("failed", ["workspace.read"])
        assert "tool.call.denied" not in stack.types(session)

    def test_who_waited_for_a_person_is_answered_in_time_although_it_runs_by_then(self, tmp_path, helpers):
        with helpers.running(tmp_path, 1.0) as stack:
            session, token = stack.open_session()
            stack.worker.gate.clear()

            async def go():
                async with asked_client(stack, token, "auto") as client:
                    waiting = asyncio.create_task(client.call_tool("workspace_exec", MAKE))
                    await asyncio.to_thread(stack.pending, session)
                    await asyncio.to_thread(vote, stack, session, Verdict.APPROVE)
                    return await waiting

            assert details(helpers.within(go()))["code"] == "CALL_RUNNING"
            stack.worker.gate.set()
            helpers.eventually(lambda: stack.types(session)[-1] == "tool.call.completed")

    @pytest.mark.parametrize("given", ["soon", "-1", "0", "nan", "inf", "1e9"])
    def test_a_time_that_is_none_is_refused_before_anything_runs(self, stack, helpers, given):
        session, token = stack.open_session()

        async def go():
            async with asked_client(stack, token, "auto", **{"CodeSDK-Wait": given}) as client:
                with pytest.raises(Exception, match="CodeSDK-Wait") as caught:
                    await client.call_tool("workspace_exec", MAKE)
                return caught.value.code

        assert helpers.within(go()) == -32600
        assert stack.types(session) == ["session.created"]


class Handmade:
    """A client of the handshake era, request by request, for what the official one would not do."""

    def __init__(self, http, url, token):
        self._http = http
        self._url = url
        self._headers = {
            "Authorization": f"Bearer {token}",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2025-11-25",
        }
        self._session = {}

    async def initialize(self):
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "odd", "version": "1"}}
        answer = await self.post({"id": 0, "method": "initialize", "params": hello})
        self._session = {"Mcp-Session-Id": answer.headers["mcp-session-id"]}
        await self.post({"method": "notifications/initialized"})

    async def post(self, message):
        headers = {**self._headers, **self._session}
        return await self._http.post(self._url, json={"jsonrpc": "2.0", **message}, headers=headers, timeout=10)

    async def call(self, number, name, arguments):
        params = {"name": name, "arguments": arguments, "_meta": {"progressToken": 3}}
        answer = await self.post({"id": number, "method": "tools/call", "params": params})
        messages = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
        return next(message for message in messages if message.get("id") == number)["result"]

    async def cancel(self, number):
        return await self.post({"method": "notifications/cancelled", "params": {"requestId": number}})

    async def drop(self):
        await self._http.delete(self._url, headers={**self._headers, **self._session})
        self._session = {}


@pytest.mark.parametrize(
    ("tool", "arguments"), [("workspace_exec", MAKE), ("workspace_write", {"path": "a", "content": "b"})]
)
def test_a_client_that_runs_timed_out_calls_again_has_one_call_and_gets_its_result(stack, helpers, tool, arguments):
    session, token = stack.open_session()
    stack.worker.gate.clear()

    async def go():
        async with httpx2.AsyncClient() as http:
            client = Handmade(http, stack.mcp_url, token)
            await client.initialize()
            for number in (3, 3, 3):
                # Its limit is on the whole call, whatever comes in between; on it, it drops all and starts anew.
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.6):
                        await client.call(number, tool, arguments)
                await client.drop()
                await client.initialize()
            last = asyncio.create_task(client.call(3, tool, arguments))
            if tool == "workspace_exec":
                await asyncio.to_thread(vote, stack, session, Verdict.APPROVE)
            await asyncio.to_thread(helpers.eventually, lambda: stack.worker.ran)
            await asyncio.sleep(1.5)  # longer than what a dropped call is given before it is withdrawn
            stack.worker.gate.set()
            return await last

    result = helpers.within(go())
    assert result["_meta"]["codesdk/call"]["status"] == "failed"
    assert len(stack.worker.ran) == 1
    assert stack.worker.cancelled == []
    assert stack.types(session).count("tool.call.requested") == 1
    assert "tool.call.denied" not in stack.types(session)


def test_a_client_that_cancels_what_was_answered_changes_nothing(stack, helpers):
    session, token = stack.open_session()

    async def go():
        async with httpx2.AsyncClient() as http:
            client = Handmade(http, stack.mcp_url, token)
            await client.initialize()
            first = await client.call(1, "workspace_read", {"path": "a"})
            answers = [await client.cancel(1), await client.cancel(1), await client.cancel(77)]
            second = await client.call(2, "workspace_read", {"path": "a"})
            return first, second, {answer.status_code for answer in answers}

    first, second, statuses = helpers.within(go())
    assert statuses == {202}
    assert first["_meta"]["codesdk/call"]["tool_call_id"] != second["_meta"]["codesdk/call"]["tool_call_id"]
    assert stack.types(session).count("tool.call.completed") == 2


def test_a_cancel_withdraws_what_still_waits_and_a_second_cancel_is_nothing(stack, helpers):
    session, token = stack.open_session()

    async def go():
        async with httpx2.AsyncClient() as http:
            client = Handmade(http, stack.mcp_url, token)
            await client.initialize()
            waiting = asyncio.create_task(client.call(1, "workspace_exec", MAKE))
            await asyncio.to_thread(stack.pending, session)
            await client.cancel(1)
            await client.cancel(1)
            await asyncio.to_thread(helpers.eventually, lambda: stack.types(session)[-1] == "tool.call.denied")
            waiting.cancel()
            await asyncio.wait([waiting])

    helpers.within(go())
    assert stack.types(session).count("tool.call.denied") == 1


def vote(stack, session, verdict):
    approval = stack.pending(session)
    stack.services.pipeline.vote(
        session.tenant_id, approval.id, verdict, digest=approval.digest, by=session.principal_id, comment=None
    )
