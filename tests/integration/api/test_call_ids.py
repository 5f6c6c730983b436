"""A client that names its call by an id and sends it again: one run and its answer, through the official client."""

from __future__ import annotations

import asyncio

import pytest
from mcp.shared.exceptions import MCPError

from codesdk.mcphost.tool_calls.caller import CALL_ID_KEY

ERAS = ["legacy", "auto"]
READ = ("workspace_read", {"path": "a.txt"})
OTHER = ("workspace_read", {"path": "b.txt"})
CLAUDE = {"claudecode/toolUseId": "toolu_01A09q90qw90lq917835lq9x"}
CODEX = {"callId": "call_Yw3s0Vb2nQ8xkT1mP6rL4dZf"}
COUNTED = {"claudecode/toolUseId": "functions.workspace_read:0"}
"""What some servers of models call the first call of every conversation."""


@pytest.fixture
def stack(standing):
    standing.worker.ran.clear()
    standing.worker.gate.set()
    yield standing
    standing.worker.gate.set()


@pytest.fixture
def call(stack, helpers):
    """Calls, each on a connection of its own and one after the other: the answers, where refused by protocol the error."""

    def run(token, *named, mode="auto"):
        async def go():
            answers = []
            for (name, arguments), meta in named:
                async with stack.client(token, mode) as client:
                    try:
                        answers.append(await client.call_tool(name, arguments, meta=meta))
                    except MCPError as error:
                        answers.append(error)
            return answers

        return helpers.within(go())

    return run


def details(result):
    return result.meta["codesdk/call"]


def named(stack, session):
    """What each call of the session is called by its client."""
    events = stack.services.log.read(session.id)
    return [event.payload.get("runtime_tool_call_id") for event in events if event.type == "tool.call.requested"]


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize("meta", [{CALL_ID_KEY: "mine/7"}, CLAUDE, CODEX], ids=["ours", "Claude Code", "Codex"])
def test_a_call_that_is_sent_again_after_its_end_runs_once_and_is_answered_whole(stack, call, mode, meta):
    session, token = stack.open_session()
    first, second = call(token, (READ, meta), (READ, meta), mode=mode)
    assert second == first
    assert second.structured_content["content"] == "hello\n"
    assert len(stack.worker.ran) == 1
    assert named(stack, session) == list(meta.values())


def test_two_ids_are_two_calls_of_the_same_input(stack, call):
    session, token = stack.open_session()
    call(token, (READ, {CALL_ID_KEY: "1"}), (READ, {CALL_ID_KEY: "2"}))
    assert len(stack.worker.ran) == 2
    assert named(stack, session) == ["1", "2"]


def test_a_denied_call_is_denied_once(stack, call):
    session, token = stack.open_session()
    secret = ("workspace_read", {"path": "server.pem"})
    first, second = call(token, (secret, {CALL_ID_KEY: "1"}), (secret, {CALL_ID_KEY: "1"}))
    assert details(first)["tool_call_id"] == details(second)["tool_call_id"]
    assert (details(second)["status"], details(second)["reason"]) == ("denied", details(first)["reason"])
    assert stack.types(session).count("tool.call.denied") == 1


def test_another_call_under_the_same_id_is_refused_and_told_what_to_do(stack, call):
    session, token = stack.open_session()
    first, second = call(token, (READ, {CALL_ID_KEY: "1"}), (OTHER, {CALL_ID_KEY: "1"}))
    assert second.is_error
    assert details(second)["code"] == "CALL_ID_TAKEN"
    assert details(second)["details"]["tool_call_id"] == details(first)["tool_call_id"]
    assert "an id of its own" in second.content[0].text
    assert len(stack.worker.ran) == 1
    assert named(stack, session) == ["1"]


def test_an_agent_that_uses_one_id_for_two_calls_has_two(stack, call):
    session, token = stack.open_session()
    answers = call(token, (READ, CLAUDE), (OTHER, CLAUDE))
    assert not any(each.is_error for each in answers)
    assert len(stack.worker.ran) == 2
    assert named(stack, session) == [CLAUDE["claudecode/toolUseId"], None]


@pytest.mark.parametrize(
    "meta",
    [COUNTED, {"callId": "call_0"}, {"callId": 7}, {"callId": "x1" * 200}, {"callId": "toolu_\n01A09q90qw90lq917"}],
)
def test_an_agents_id_that_is_counted_or_odd_says_nothing(stack, call, meta):
    session, token = stack.open_session()
    answers = call(token, (READ, meta), (READ, meta))
    assert not any(each.is_error for each in answers)
    assert len(stack.worker.ran) == 2
    assert named(stack, session) == [None, None]


@pytest.mark.parametrize("given", ["", "x" * 201, "a b", "a\n", "\u00e9", 7, ["1"]], ids=repr)
def test_an_id_of_ours_that_is_none_is_refused_before_anything_is_recorded(stack, call, given):
    session, token = stack.open_session()
    (refused,) = call(token, (READ, {CALL_ID_KEY: given}))
    assert isinstance(refused, MCPError)
    assert refused.code == -32602
    assert CALL_ID_KEY in str(refused)
    assert stack.types(session) == ["session.created"]


def test_another_sessions_id_is_not_found(stack, call):
    (_, mine), (session, theirs) = stack.open_session(), stack.open_session()
    call(mine, (READ, {CALL_ID_KEY: "1"}))
    call(theirs, (READ, {CALL_ID_KEY: "1"}))
    assert len(stack.worker.ran) == 2
    assert stack.types(session).count("tool.call.completed") == 1


@pytest.mark.parametrize("mode", ERAS)
def test_a_call_that_runs_is_joined_by_its_id_and_both_get_its_answer(stack, helpers, mode):
    session, token = stack.open_session()
    stack.worker.gate.clear()

    async def one():
        async with stack.client(token, mode) as client:
            return await client.call_tool(*READ, meta={CALL_ID_KEY: "1"})

    async def go():
        first = asyncio.create_task(one())
        await asyncio.to_thread(helpers.eventually, lambda: stack.worker.ran)
        second = asyncio.create_task(one())
        await asyncio.sleep(0.2)
        stack.worker.gate.set()
        return await asyncio.gather(first, second)

    first, second = helpers.within(go())
    assert second == first
    assert len(stack.worker.ran) == 1
    assert stack.types(session).count("tool.call.requested") == 1


def test_who_was_told_that_it_runs_gets_the_answer_itself_by_the_same_id(stack, helpers):
    """Without an id it is told to collect it, since it may mean another call like it."""
    session, token = stack.open_session()
    stack.worker.gate.clear()

    async def go():
        async with stack.client(token, "auto", **{"CodeSDK-Wait": "0.5"}) as client:
            early = await client.call_tool(*READ, meta={CALL_ID_KEY: "1"})
            stack.worker.gate.set()
            await asyncio.to_thread(helpers.eventually, lambda: stack.types(session)[-1] == "tool.call.completed")
            return early, await client.call_tool(*READ, meta={CALL_ID_KEY: "1"})

    early, late = helpers.within(go())
    assert details(early)["code"] == "CALL_RUNNING"
    assert (details(late)["status"], late.structured_content["content"]) == ("completed", "hello\n")
    assert len(stack.worker.ran) == 1
