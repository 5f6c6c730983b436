"""Tool calls through the official client, in both protocol eras."""

from __future__ import annotations

import asyncio

import mcp_types as types
import pytest
from mcp.shared.exceptions import MCPError
from sqlalchemy import text as sql

from codesdk.approvals import Verdict
from codesdk.domain.tool_results import ToolResult
from codesdk.mcphost import host
from codesdk.mcphost.tool_calls import handler

ERAS = ["legacy", "auto"]
ALLOWED = ["tool.call.requested", "tool.call.policy_evaluated", "tool.call.approved", "tool.call.started"]


@pytest.fixture
def call(stack, helpers):
    """One call on a connection of its own; a protocol error is returned."""

    def run(token, mode, name, arguments, **more):
        async def go():
            async with stack.client(token, mode) as client:
                try:
                    return await client.call_tool(name, arguments, **more)
                except MCPError as error:
                    return error

        return helpers.within(go())

    return run


def details(result):
    return result.meta["codesdk/call"]


@pytest.mark.parametrize("mode", ERAS)
def test_a_call_that_policy_allows_runs_and_its_result_comes_back(stack, call, mode):
    session, token = stack.open_session()
    result = call(token, mode, "workspace_read", {"path": "a.txt"})
    assert (result.is_error, result.content[0].text) == (False, "hello\n")
    assert result.structured_content["content"] == "hello\n"
    assert stack.types(session)[1:] == [*ALLOWED, "tool.call.completed"]


@pytest.mark.parametrize("mode", ERAS)
def test_a_tool_that_fails_is_an_error_result_without_structured_content(stack, call, mode):
    _, token = stack.open_session()
    stack.worker.answer = lambda _: ToolResult(text="No such file.", is_error=True, code="NOT_FOUND")
    result = call(token, mode, "workspace_read", {"path": "b.txt"})
    assert (result.is_error, result.structured_content, details(result)["code"]) == (True, None, "NOT_FOUND")


@pytest.mark.parametrize("mode", ERAS)
def test_a_denied_call_says_why_and_by_which_rule_and_does_not_run(stack, call, mode):
    session, token = stack.open_session()
    result = call(token, mode, "workspace_read", {"path": "server.pem"})
    assert result.is_error
    assert "Keys are not read." in result.content[0].text
    assert details(result) | {"tool_call_id": "", "attempt": 0} == {
        "status": "denied",
        "code": "DENIED_BY_POLICY",
        "reason": "Keys are not read.",
        "rules": ["no-secrets"],
        "retryable": False,
        "tool_call_id": "",
        "attempt": 0,
    }
    assert stack.types(session)[-1] == "tool.call.denied"
    assert stack.worker.ran == []


@pytest.mark.parametrize("mode", ERAS)
def test_an_approved_call_runs_while_its_client_waits(stack, helpers, mode):
    session, token = stack.open_session()
    stack.worker.answer = lambda _: ToolResult(text="done", is_error=True, code="NONZERO_EXIT")

    async def go():
        async with stack.client(token, mode) as client:
            waiting = asyncio.create_task(client.call_tool("workspace_exec", {"command": "make"}))
            approval = await asyncio.to_thread(stack.pending, session)
            assert not waiting.done()
            await asyncio.to_thread(
                stack.services.pipeline.vote,
                session.tenant_id,
                approval.id,
                Verdict.APPROVE,
                digest=approval.digest,
                by=session.principal_id,
                comment=None,
            )
            return await waiting

    assert helpers.within(go()).content[0].text == "done"


@pytest.mark.parametrize("mode", ERAS)
def test_a_rejected_call_reaches_the_agent_with_the_persons_words(stack, helpers, mode):
    session, token = stack.open_session()

    async def go():
        async with stack.client(token, mode) as client:
            waiting = asyncio.create_task(client.call_tool("workspace_exec", {"command": "rm x"}))
            approval = await asyncio.to_thread(stack.pending, session)
            await asyncio.to_thread(
                stack.services.pipeline.vote,
                session.tenant_id,
                approval.id,
                Verdict.REJECT,
                digest=approval.digest,
                by=session.principal_id,
                comment="Use trash.",
            )
            return await waiting

    result = helpers.within(go())
    assert (result.is_error, details(result)["code"]) == (True, "REJECTED_BY_APPROVER")
    assert "Use trash." in result.content[0].text


class TestWhereNobodyDecides:
    @pytest.fixture
    def wait_s(self):
        return 0.5

    @pytest.mark.parametrize("mode", ERAS)
    def test_the_answer_says_what_it_waits_for_and_how_to_go_on(self, stack, call, mode):
        session, token = stack.open_session()
        result = call(token, mode, "workspace_exec", {"command": "make"})
        approval = stack.pending(session)
        assert result.is_error
        assert details(result)["approval_id"] == approval.id
        assert (details(result)["retryable"], details(result)["rules"]) == (True, ["exec"])
        text = result.content[0].text
        assert "Commands are asked about." in text
        assert "Call the same tool again with the same arguments" in text

    @pytest.mark.parametrize("trusted", [False, True])
    def test_the_answer_links_to_a_page_that_shows_the_question_and_decides_nothing(self, tmp_path, helpers, trusted):
        with helpers.running(tmp_path, 0.5, trust_clients=trusted) as stack:
            session, token = stack.open_session()

            async def go():
                async with stack.client(token, "auto") as client:
                    return [await client.call_tool("workspace_exec", {"command": "make"}) for _ in range(2)]

            first, second = helpers.within(go())
            page = details(first)["approval_page"]
            assert page in first.content[0].text
            assert details(second)["approval_page"] == page  # one ticket, however often it is told
            with stack.http() as client:
                assert "Your own API key" in client.get(page).text
                form = {"verdict": "approve", "digest": stack.pending(session).digest}
                assert client.post(page, data=form, headers={"Origin": stack.url}).status_code == 403
            assert stack.pending(session)

    def test_the_same_call_again_joins_the_same_question(self, stack, call):
        _, token = stack.open_session()
        first = call(token, "auto", "workspace_exec", {"command": "make"})
        second = call(token, "auto", "workspace_exec", {"command": "make"})
        assert details(first)["approval_id"] == details(second)["approval_id"]
        assert details(first)["tool_call_id"] == details(second)["tool_call_id"]

    @pytest.mark.parametrize("mode", ERAS)
    def test_what_ran_meanwhile_is_collected_by_its_id_and_neither_run_nor_asked_again(
        self, stack, helpers, call, mode
    ):
        session, token = stack.open_session()
        stack.worker.answer = lambda _: ToolResult(text="made", is_error=True)
        first = call(token, mode, "workspace_exec", {"command": "make"})
        vote(stack, session, Verdict.APPROVE)
        helpers.eventually(lambda: "tool.call.completed" in stack.types(session))
        again = call(token, mode, "workspace_exec", {"command": "make"})
        assert (details(again)["code"], details(again)["retryable"]) == ("RESULT_READY", True)
        collect = details(again)["collect"]
        assert collect == details(first)["collect"]
        second = call(token, mode, collect["tool"], collect["arguments"])
        assert details(second)["tool_call_id"] == details(first)["tool_call_id"]
        assert second.content[0].text == "made"
        third = call(token, mode, "workspace_exec", {"command": "make"})
        assert (details(third)["code"], stack.worker.ran) == ("APPROVAL_PENDING", ["workspace.exec"])

    def test_after_it_was_collected_the_same_call_is_a_call_of_its_own(self, stack, helpers, call):
        session, token = stack.open_session()
        first = call(token, "auto", "workspace_exec", {"command": "make"})
        vote(stack, session, Verdict.APPROVE)
        helpers.eventually(lambda: "tool.call.completed" in stack.types(session))
        call(token, "auto", **named(details(first)["collect"]))
        again = call(token, "auto", "workspace_exec", {"command": "make"})
        assert details(again)["code"] == "APPROVAL_PENDING"
        assert details(again)["tool_call_id"] != details(first)["tool_call_id"]

    def test_collecting_waits_as_long_as_the_call_itself_and_withdraws_nothing(self, stack, call):
        session, token = stack.open_session()
        first = call(token, "auto", "workspace_exec", {"command": "make"})
        second = call(token, "auto", **named(details(first)["collect"]))
        assert details(second)["code"] == "APPROVAL_PENDING"
        assert stack.pending(session)

    def test_another_session_collects_nothing_of_it(self, stack, call):
        _, token = stack.open_session()
        first = call(token, "auto", "workspace_exec", {"command": "make"})
        _, other = stack.open_session()
        assert details(call(other, "auto", **named(details(first)["collect"])))["code"] == "CALL_UNKNOWN"

    def test_the_same_call_after_a_rejection_is_told_so_and_not_asked_again(self, stack, call):
        session, token = stack.open_session()
        call(token, "auto", "workspace_exec", {"command": "make"})
        vote(stack, session, Verdict.REJECT)
        second = call(token, "auto", "workspace_exec", {"command": "make"})
        assert details(second)["code"] == "REJECTED_BY_APPROVER"

    def test_another_session_gets_nothing_of_it(self, stack, call):
        session, token = stack.open_session()
        call(token, "auto", "workspace_exec", {"command": "make"})
        vote(stack, session, Verdict.REJECT)
        _, other = stack.open_session()
        assert details(call(other, "auto", "workspace_exec", {"command": "make"}))["code"] == "APPROVAL_PENDING"

    def test_an_expired_question_is_asked_again(self, stack, call):
        _, token = stack.open_session()
        first = call(token, "auto", "workspace_exec", {"command": "make"})
        with stack.services.database.writer.begin() as connection:
            connection.execute(sql("UPDATE approvals SET expires_at = 1"))
        stack.services.approval_flow.expire_overdue()
        second = call(token, "auto", "workspace_exec", {"command": "make"})
        assert details(second)["approval_id"] != details(first)["approval_id"]


def named(collect):
    return {"name": collect["tool"], "arguments": collect["arguments"]}


def vote(stack, session, verdict):
    approval = stack.pending(session)
    stack.services.pipeline.vote(
        session.tenant_id, approval.id, verdict, digest=approval.digest, by=session.principal_id, comment=None
    )


@pytest.mark.parametrize("mode", ERAS)
def test_an_unknown_tool_is_a_protocol_error_with_the_nearest_name(stack, call, mode):
    _, token = stack.open_session()
    error = call(token, mode, "workspace_raed", {})
    assert (type(error), error.code) == (MCPError, -32602)
    assert "workspace_read" in error.message


@pytest.mark.parametrize("mode", ERAS)
def test_an_input_that_does_not_fit_is_a_result_that_names_the_field(stack, call, mode):
    session, token = stack.open_session()
    result = call(token, mode, "workspace_read", {"path": "a", "limit": "many"})
    assert (result.is_error, details(result)["code"]) == (True, "INVALID_INPUT")
    assert "limit" in result.content[0].text
    assert "integer" in result.content[0].text
    assert stack.types(session) == ["session.created"]


@pytest.mark.parametrize("mode", ERAS)
def test_a_request_that_is_too_large_is_refused_in_words(stack, call, mode):
    session, token = stack.open_session()
    refused = call(token, mode, "workspace_write", {"path": "a", "content": "x" * (host.MAX_BODY + 1)})
    assert isinstance(refused, MCPError)
    assert f"at most {host.MAX_BODY} are taken" in str(refused)
    assert stack.types(session) == ["session.created"]


@pytest.mark.parametrize("mode", ERAS)
def test_progress_tells_that_it_runs_and_shows_its_output(stack, call, mode):
    _, token = stack.open_session()
    seen = []

    def answer(claimed):
        stack.worker.say(claimed, "collecting ...\n")
        return ToolResult(text="hello\n", structured={**READ})

    stack.worker.answer = answer
    stack.worker.gate.clear()

    async def on_progress(progress, total, message):
        seen.append((progress, message))
        if "collecting" in message:
            stack.worker.gate.set()

    call(token, mode, "workspace_read", {"path": "a"}, progress_callback=on_progress)
    numbers = [progress for progress, _ in seen]
    assert numbers == sorted(set(numbers))
    assert seen[-1][1] == "running: collecting ..."


@pytest.mark.parametrize("mode", ERAS)
def test_a_cancelled_call_that_runs_is_stopped(stack, helpers, mode):
    session, token = stack.open_session()
    stack.worker.gate.clear()

    async def go():
        async with stack.client(token, mode) as client:
            running = asyncio.create_task(client.call_tool("workspace_read", {"path": "a"}))
            await asyncio.to_thread(helpers.eventually, lambda: stack.worker.ran)
            running.cancel()
            await asyncio.to_thread(helpers.eventually, lambda: stack.worker.cancelled)

    helpers.within(go())
    helpers.eventually(lambda: stack.types(session)[-1] == "tool.call.completed")


@pytest.mark.parametrize("mode", ERAS)
def test_a_cancelled_call_that_waits_for_a_person_is_withdrawn(stack, helpers, mode):
    session, token = stack.open_session()

    async def go():
        async with stack.client(token, mode) as client:
            waiting = asyncio.create_task(client.call_tool("workspace_exec", {"command": "make"}))
            await asyncio.to_thread(stack.pending, session)
            waiting.cancel()
            await asyncio.to_thread(helpers.eventually, lambda: stack.types(session)[-1] == "tool.call.denied")

    helpers.within(go())
    assert stack.services.approvals.listing(session.tenant_id, None, session.id)[0].state == "cancelled"


def test_a_question_that_two_calls_wait_for_outlives_the_cancel_of_one(stack, helpers):
    session, token = stack.open_session()

    async def go():
        async with stack.client(token, "auto") as one, stack.client(token, "auto") as other:
            first = asyncio.create_task(one.call_tool("workspace_exec", {"command": "make"}))
            approval = await asyncio.to_thread(stack.pending, session)
            second = asyncio.create_task(other.call_tool("workspace_exec", {"command": "make"}))
            await asyncio.sleep(0.5)
            first.cancel()
            await asyncio.sleep(0.5)
            assert stack.services.approvals.find(session.tenant_id, approval.id).state == "pending"
            second.cancel()
            await asyncio.to_thread(helpers.eventually, lambda: stack.types(session)[-1] == "tool.call.denied")

    helpers.within(go())


def test_a_cancel_that_comes_after_the_result_changes_nothing(stack, helpers):
    session, token = stack.open_session()

    async def go():
        async with stack.client(token, "legacy") as client:
            await client.call_tool("workspace_read", {"path": "a"})
            for request_id in range(5):
                await client.session.send_notification(cancelled(request_id))
            return await client.call_tool("workspace_read", {"path": "a"})

    assert not helpers.within(go()).is_error
    assert "tool.call.denied" not in stack.types(session)


def test_a_call_that_no_worker_takes_is_taken_back_and_says_so(stack, call, monkeypatch):
    monkeypatch.setattr(handler, "CALL_MARGIN_S", -29.5)
    session, token = stack.open_session()
    stack.worker.paused = True
    result = call(token, "auto", "workspace_read", {"path": "a"})
    assert (result.is_error, details(result)["code"]) == (True, "CANCELLED")
    assert "worker" in result.content[0].text
    assert stack.types(session)[-1] == "tool.call.denied"


def test_a_defect_shows_no_internals(stack, call, monkeypatch, caplog):
    _, token = stack.open_session()

    def broken(*_args, **_more):
        raise KeyError("secret-of-ours")

    monkeypatch.setattr(stack.services.pipeline, "submit", broken)
    for mode in ERAS:
        error = call(token, mode, "workspace_read", {"path": "a"})
        assert (error.code, "secret-of-ours" in error.message) == (-32603, False)
    assert "secret-of-ours" in caplog.text


def test_closing_the_session_ends_a_call_that_waits(stack, helpers):
    session, token = stack.open_session()

    async def go():
        async with stack.client(token, "auto") as client:
            waiting = asyncio.create_task(client.call_tool("workspace_exec", {"command": "make"}))
            await asyncio.to_thread(stack.pending, session)
            await asyncio.to_thread(stack.services.sessions.close, session.tenant_id, session.id)
            return await waiting

    assert details(helpers.within(go()))["code"] == "SESSION_CLOSED"


@pytest.mark.parametrize("mode", ERAS)
def test_the_tool_list_has_wire_names_schemas_hints_and_hashes(stack, helpers, mode):
    _, token = stack.open_session()

    async def go():
        async with stack.client(token, mode) as client:
            return await client.list_tools()

    listed = helpers.within(go())
    tools = {tool.name: tool for tool in listed.tools}
    # patch.apply, move and delete are left out: this policy allows them for no input.
    assert sorted(tools) == [
        "collect_result",
        "workspace_exec",
        "workspace_list",
        "workspace_read",
        "workspace_search",
        "workspace_stat",
        "workspace_write",
    ]
    read, execute = tools["workspace_read"], tools["workspace_exec"]
    assert (read.annotations.read_only_hint, read.annotations.open_world_hint) == (True, False)
    assert (execute.annotations.read_only_hint, execute.annotations.destructive_hint) == (False, True)
    assert read.input_schema == dict(stack.services.registry.shared.resolve("workspace.read").input_schema)
    assert read.output_schema["required"]
    assert read.meta["codesdk/tool"] == "workspace.read"
    assert read.meta["codesdk/schema-hash"] == stack.services.registry.shared.resolve("workspace.read").schema_hash
    assert (read.meta["codesdk/allowed"], tools["workspace_write"].meta["codesdk/allowed"]) == ("depends", "always")
    if mode == "auto":
        assert listed.cache_scope == "private"


def test_a_tool_that_is_not_listed_is_denied_on_record(stack, call):
    session, token = stack.open_session()
    result = call(token, "auto", "patch_apply", {"patch": "--- a\n+++ b\n"})
    assert details(result)["code"] == "DENIED_BY_POLICY"
    assert stack.types(session)[-1] == "tool.call.denied"


READ = {
    "path": "a.txt",
    "content": "hello\n",
    "start_line": 1,
    "end_line": 1,
    "total_lines": 1,
    "truncated": False,
    "sha256": None,
}


def cancelled(request_id):
    return types.CancelledNotification(params=types.CancelledNotificationParams(request_id=request_id))


def test_forty_calls_at_once_all_come_back(stack, helpers):
    session, token = stack.open_session()

    async def go():
        async with stack.client(token, "auto") as client:
            return await asyncio.gather(*(client.call_tool("workspace_read", {"path": f"f{n}"}) for n in range(40)))

    results = helpers.within(go())
    assert {result.content[0].text for result in results} == {"hello\n"}
    assert len({details(result)["tool_call_id"] for result in results}) == 40
    assert [event.seq for event in stack.services.log.read(session.id)] == list(range(1, 202))


@pytest.mark.parametrize("mode", ERAS)
def test_a_refused_call_is_told_in_the_names_that_the_client_knows(stack, call, mode):
    _, token = stack.open_session()
    refused = call(token, mode, "workspace_read", {"pth": "a"})
    assert "of `workspace_read` is invalid" in refused.content[0].text
    assert "(`path` instead of `pth`?)" in refused.content[0].text
    taken = call(token, mode, "workspace_read", {"path": "a.txt", "offset": "1", "limit": None})
    assert taken.structured_content["content"] == "hello\n"
