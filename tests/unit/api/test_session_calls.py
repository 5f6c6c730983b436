"""A request that waits for a call: who is told what when the client leaves, the process stops, or time is up."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from codesdk.api.event_stream import OpenStreams, TooManyStreams
from codesdk.api.session_calls import wait_while_connected
from codesdk.domain.calls import CallIdentity
from codesdk.domain.ids import PrincipalId, SessionId, TenantId, ToolCallId
from codesdk.domain.subjects import Subject
from codesdk.domain.tool_results import ToolResult
from codesdk.mcphost.tool_calls.progress import Waiters
from codesdk.toolcalls.records.call_record import Finished, Queued

CALL = CallIdentity(tool_call_id=ToolCallId("call_1"), attempt=1, input_hash="sha256:" + "0" * 64)
DEADLINE_S = 30.0


class World:
    """A client, and a call that ends when the test says so."""

    def __init__(self, streams: int = 10) -> None:
        self.left = asyncio.Event()
        self.ended = asyncio.Event()
        self.withdrawn: list[ToolCallId] = []
        self.streams = OpenStreams(streams)
        self.waiters = Waiters(self._withdraw, self._cancel, 1.0)
        self.subject = Subject.model_construct(
            tenant_id=TenantId("default"), session_id=SessionId("ses_1"), principal_id=PrincipalId("pri_1")
        )

    async def _withdraw(self, call: ToolCallId, _subject: Subject) -> bool:
        self.withdrawn.append(call)
        return True

    async def _cancel(self, call: ToolCallId, _subject: Subject) -> None:
        self.withdrawn.append(call)

    async def receive(self) -> dict[str, Any]:
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def wait(self, outcome: Any, _subject: Subject, timeout_s: float) -> Any:
        try:
            async with asyncio.timeout(timeout_s):
                await self.ended.wait()
        except TimeoutError:
            return outcome
        return Finished(identity=CALL, result=ToolResult(text="done"))

    async def go(self, wait_s: float = DEADLINE_S, *, joined: bool = False) -> Any:
        request: Any = self
        results: Any = self
        return await wait_while_connected(
            request,
            Queued(identity=CALL),
            self.subject,
            results=results,
            waiters=self.waiters,
            streams=self.streams,
            wait_s=wait_s,
            joined=joined,
        )


async def begun(world: World, *, joined: bool = False) -> asyncio.Task[Any]:
    task = asyncio.create_task(world.go(joined=joined))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return task


def test_a_call_that_ends_is_answered_and_not_withdrawn() -> None:
    async def go() -> None:
        world = World()
        task = await begun(world)
        world.ended.set()
        assert (await task).result.text == "done"
        await world.waiters.settle()
        assert world.withdrawn == []

    asyncio.run(go())


def test_a_wait_that_is_over_leaves_the_call_running() -> None:
    async def go() -> None:
        world = World()
        assert await world.go(wait_s=0.01) == Queued(identity=CALL)
        await world.waiters.settle()
        assert world.withdrawn == []

    asyncio.run(go())


def test_a_client_that_leaves_withdraws_its_call() -> None:
    async def go() -> None:
        world = World()
        task = await begun(world)
        world.left.set()
        await task
        await world.waiters.settle()
        assert world.withdrawn == ["call_1"]

    asyncio.run(go())


def test_a_client_that_joined_an_earlier_requests_call_leaves_it_running() -> None:
    async def go() -> None:
        world = World()
        task = await begun(world, joined=True)
        world.left.set()
        await task
        await world.waiters.settle()
        assert world.withdrawn == []

    asyncio.run(go())


def test_a_process_that_stops_answers_and_leaves_the_call_running() -> None:
    async def go() -> None:
        world = World()
        task = await begun(world)
        world.streams.close()
        assert await asyncio.wait_for(task, DEADLINE_S) == Queued(identity=CALL)
        await world.waiters.settle()
        assert world.withdrawn == []

    asyncio.run(go())


def test_a_tenant_waits_for_so_many_calls_at_once_and_no_more() -> None:
    async def go() -> None:
        world = World(streams=2)
        tasks = [await begun(world), await begun(world)]
        with pytest.raises(TooManyStreams):
            await world.go()
        world.ended.set()
        assert [(await task).result.text for task in tasks] == ["done", "done"]
        await world.waiters.settle()
        assert world.withdrawn == []

    asyncio.run(go())
