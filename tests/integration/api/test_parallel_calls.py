"""Many calls at once through the official client: each gets its own result, and only what writes to one workspace waits."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator

import pytest

from codesdk.domain.quotas import Resource
from stage import REPOSITORY, wait_for
from whole_stage import DEADLINE_S, POLICY, Agent, Installation

pytestmark = [pytest.mark.redis, pytest.mark.timeout(300)]


@pytest.fixture
def house(redis_url, tmp_path) -> Iterator[Installation]:
    """Over fake sandboxes."""
    made = Installation(tmp_path, redis_url)
    made.start_api()
    made.start_worker()
    yield made
    made.close()


BESIDE = """\
name: note.beside
version: 1.0.0
title: Note beside
description: Writes, each time to a place of its own, so that it need not wait for what else writes.
classification: write
serial: false
runs: {argv: [note, {arg: /line}]}
input_schema: {type: object, additionalProperties: false, required: [line], properties: {line: {type: string}}}
"""


@pytest.fixture
def house_of_notes(redis_url, tmp_path) -> Iterator[Installation]:
    """With a tool that writes and is not serial."""
    tools = tmp_path / "tools"
    shutil.copytree(REPOSITORY / "tool-registry", tools)
    (tools / "note.beside.yaml").write_text(BESIDE)
    made = Installation(tmp_path, redis_url, registry_dir=tools)
    allowed = "  - {id: notes, effect: allow, tool: note.beside}\n"
    (tmp_path / "policies" / "policy.yaml").write_text(POLICY + allowed)
    made.start_api()
    made.start_worker()
    yield made
    made.close()


async def until(fact, what: str) -> None:
    await asyncio.to_thread(wait_for, fact, what, DEADLINE_S)


def said(result) -> str:
    return result.structured_content["stdout"]


async def at_once(agent: Agent, client, *commands: str) -> list[asyncio.Task]:
    """Calls, each on record before the next is made."""
    made = []
    for command in commands:
        before = agent.requested()
        made.append(asyncio.create_task(client.call_tool("workspace_exec", {"command": command})))
        await until(lambda before=before: agent.requested() == before + 1, command)
    return made


def test_commands_of_one_workspace_follow_each_other_and_reads_and_a_question_hold_nobody_up(house):
    agent = house.open_session(parallel_calls=4)

    async def go():
        async with agent.client("auto") as client:
            asked, running, behind = await at_once(agent, client, "risky", "hold first", "second")
            await until(lambda: house.ran("hold first"), "the command behind the question")
            listed = await client.call_tool("workspace_list", {})
            stood = (asked.done(), running.done(), behind.done(), house.runs_of(agent.session))
            house.release("hold first")
            ended = [said(await each) for each in (running, behind)]
            approval = await asyncio.to_thread(agent.approval)
            await asyncio.to_thread(agent.approve, approval)
            return listed.is_error, stood, ended, said(await asked)

    assert asyncio.run(go()) == (False, (False, False, False, 1), ["hold first", "second"], "risky")
    agent.is_lawful()


def test_what_writes_and_is_not_serial_runs_beside_a_command_and_as_many_calls_run_at_once_as_the_session_declared(
    house_of_notes,
):
    house, declared = house_of_notes, 4
    agent = house.open_session(parallel_calls=declared)
    lines = [f"hold {number}" for number in range(declared)]
    began = lambda: [line for line in lines if house.ran(line)]  # noqa: E731

    async def go():
        async with agent.client("auto") as client:
            calls = await at_once(agent, client, "hold command")
            calls += [asyncio.create_task(client.call_tool("note_beside", {"line": line})) for line in lines]
            await until(lambda: house.runs_of(agent.session) == declared, "as many as were declared")
            await until(lambda: agent.requested() == 1 + declared, "the last one's record")
            at_first, running = began(), house.ran("hold command")
            house.release("hold command")
            await until(lambda: len(began()) == declared, "the last one")
            for line in lines:
                house.release(line)
            return len(at_first), running, [said(await call) for call in calls]

    assert asyncio.run(go()) == (declared - 1, True, ["hold command", *lines])
    agent.is_lawful()


@pytest.mark.parametrize("most", [2, None])
def test_sessions_run_at_once_up_to_their_tenants_limit_and_results_find_their_calls(house, most):
    agents = [house.open_session() for _ in range(4)]
    if most is not None:
        limits = {Resource.RUNNING_CALLS: most}
        house.api.writer.run(lambda unit: house.api.quotas.set_limits(unit, agents[0].tenant, limits))
    commands = [f"hold {number}" for number in range(4)]
    began = lambda: [command for command in commands if house.ran(command)]  # noqa: E731

    async def one(agent: Agent, command: str) -> str:
        async with agent.client("auto") as client:
            return said(await client.call_tool("workspace_exec", {"command": command}))

    async def go():
        calls = [asyncio.create_task(one(*each)) for each in zip(agents, commands, strict=True)]
        await until(lambda: sum(agent.requested() for agent in agents) == 4, "all four")
        await until(lambda: len(began()) == (most or 4), "as many as may")
        at_first = began()
        while len(released) < 4:
            await until(lambda: set(began()) - released, "the next")
            for command in set(began()) - released:
                house.release(command)
                released.add(command)
        return at_first, await asyncio.gather(*calls)

    released: set[str] = set()
    at_first, ended = asyncio.run(go())
    assert len(at_first) == (most or 4)
    assert ended == commands
    for agent in agents:
        agent.is_lawful()
