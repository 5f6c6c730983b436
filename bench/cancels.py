"""Measures how long it takes to end a command.

`cancel_ms`: from the cancel over HTTP to the answer at the MCP client, which arrives when the runner has reported that
the whole process tree has ended and the end is recorded. `cancel_stubborn_ms`: the same for a program that ignores
SIGTERM. For that program also `cancel_mcp_ms` and `session_end_ms`: from the MCP client's cancel
(`notifications/cancelled`) and from the end of its session to the recorded end; no client gets an answer to these.

In turn with these, the alternatives without CodeSDK: `docker_exec_kill_ms`, `kill -9` by another `docker exec` until
the first one's output ends, which leaves its children; and `docker_kill_ms`, `docker kill` until the container has
ended, which ends everything in it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from docker import DockerClient

from codesdk.approvals import ApprovalState, Verdict
from codesdk.cli.demo.agent import connect_mcp
from codesdk.cli.stack.stack import Stack
from codesdk.domain.events import EventType
from codesdk.sessions import NewSession

ROUNDS = 10
STUBBORN_ROUNDS = 5
TIMEOUT_S = 60.0
LOOK_S = 0.005
"""Seconds between polls for the recorded end, which may add as much to a measured time."""
AIM_MS = 2000.0
"""Target from the cancel to the recorded end, p95."""
NAMES = ("cancel", "cancel_stubborn", "cancel_mcp", "session_end", "docker_exec_kill", "docker_kill")
AIMED = {
    "cancel_stubborn": "until a command that ignores SIGTERM has ended (p95)",
    "cancel_mcp": "until one that its MCP client cancels has ended (p95)",
    "session_end": "until one whose session ends has ended (p95)",
}
"""Measurements that are compared with `AIM_MS`, and their descriptions."""
STUBBORN = "trap '' TERM; sleep {0} & sleep {0}"
COMMANDS = {"cancel": "sleep {0}", "cancel_stubborn": STUBBORN}


def measure(
    stack: Stack, client: DockerClient, container: str, image: str, say: Callable[[str], None]
) -> dict[str, list[float]]:
    """Return the milliseconds of each, by name."""
    say(f"{ROUNDS} commands that are cancelled, and as many that are killed")
    session = stack.daemon.open_session(NewSession(labels={"opened-by": "bench"}))
    times: dict[str, list[float]] = {name: [] for name in NAMES}
    for number in range(ROUNDS):
        for name, command in COMMANDS.items():
            if name == "cancel" or number < STUBBORN_ROUNDS:
                line = command.format(600 + number)  # another each time: equal calls would be one
                times[name].append(asyncio.run(_cancelled(stack, session, line)))
        if number < STUBBORN_ROUNDS:
            line = STUBBORN.format(700 + number)
            times["cancel_mcp"].append(asyncio.run(_given_up(stack, session, line)))
            times["session_end"].append(asyncio.run(_closed(stack, line)))
        times["docker_exec_kill"].append(_exec_killed(client, container))
        times["docker_kill"].append(_killed(client, image))
    return times


async def _cancelled(stack: Stack, session: Any, command: str) -> float:
    async with connect_mcp(session.mcp_url, session.token) as client:
        place = stack.daemon.session(session.session.id).last_seq
        asked = asyncio.create_task(client.call_tool("workspace_exec", {"command": command}))
        call = await asyncio.to_thread(_started, stack, session.session.id, place)
        began = time.perf_counter()
        path = f"/v1/sessions/{session.session.id}/calls/{call}/cancel"
        await asyncio.to_thread(stack.daemon.request, "POST", path)
        result = await asked
        took_ms = (time.perf_counter() - began) * 1000
        assert result.meta["codesdk/call"]["code"] == "CANCELLED", result
        return took_ms


async def _given_up(stack: Stack, session: Any, command: str) -> float:
    """Cancel by `notifications/cancelled`, of the older protocol, which most agents speak."""
    async with connect_mcp(session.mcp_url, session.token, "legacy") as client:
        place = stack.daemon.session(session.session.id).last_seq
        asked = asyncio.create_task(client.call_tool("workspace_exec", {"command": command}))
        call = await asyncio.to_thread(_started, stack, session.session.id, place)
        began = time.perf_counter()
        asked.cancel()
        await asyncio.wait([asked])  # the notification is on its way
        await asyncio.to_thread(_ended, stack, session.session.id, place, call)
        return (time.perf_counter() - began) * 1000


async def _closed(stack: Stack, command: str) -> float:
    """End the session, which was opened for this call."""
    session = stack.daemon.open_session(NewSession(labels={"opened-by": "bench"}))
    async with connect_mcp(session.mcp_url, session.token) as client:
        asked = asyncio.create_task(client.call_tool("workspace_exec", {"command": command}))
        call = await asyncio.to_thread(_started, stack, session.session.id, 0)
        began = time.perf_counter()
        await asyncio.to_thread(stack.daemon.close_session, session.session.id)
        await asyncio.to_thread(_ended, stack, session.session.id, 0, call)
        took_ms = (time.perf_counter() - began) * 1000
        await asyncio.wait([asked])
        return took_ms


def _ended(stack: Stack, session: str, place: int, call: str) -> None:
    """Wait until the cancel is recorded as the call's end."""
    until = time.monotonic() + TIMEOUT_S
    while time.monotonic() < until:
        for event in stack.daemon.events(session, place):
            if event.type is EventType.CALL_COMPLETED and event.payload["tool_call_id"] == call:
                assert event.payload["code"] == "CANCELLED", event
                return
        time.sleep(LOOK_S)
    raise TimeoutError("the call did not end")


def _started(stack: Stack, session: str, place: int) -> str:
    """Return the id of the latest call once it runs; approve it if policy asks."""
    until = time.monotonic() + TIMEOUT_S
    while time.monotonic() < until:
        for shown in stack.daemon.approvals(ApprovalState.PENDING, session):
            stack.daemon.vote(shown, Verdict.APPROVE)
        for event in stack.daemon.events(session, place):
            if event.type is EventType.CALL_STARTED:
                time.sleep(0.2)  # the command's own start is not what is measured
                return str(event.payload["tool_call_id"])
        time.sleep(0.02)
    raise TimeoutError("the call did not start")


def _exec_killed(client: DockerClient, container: str) -> float:
    api = client.api
    made = api.exec_create(container, ["sh", "-c", "echo $$; exec sleep 600"])
    output = api.exec_start(made["Id"], stream=True)
    pid = next(output).decode().strip()
    time.sleep(0.2)
    began = time.perf_counter()
    killing = api.exec_create(container, ["sh", "-c", f"kill -9 {pid}"])
    for _ in api.exec_start(killing["Id"], stream=True):
        pass
    for _ in output:
        pass
    return (time.perf_counter() - began) * 1000


def _killed(client: DockerClient, image: str) -> float:
    made = client.containers.run(image, entrypoint=["sleep"], command=["600"], network_mode="none", detach=True)
    try:
        time.sleep(0.2)
        began = time.perf_counter()
        made.kill()
        made.wait()
        return (time.perf_counter() - began) * 1000
    finally:
        made.remove(force=True)
