"""A command's output from a real sandbox: delivered while it prints, each byte once, regardless of slow readers."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from contextlib import ExitStack
from urllib.parse import urlsplit

import pytest

from stage import wait_for
from whole_stage import DEADLINE_S, Agent

pytestmark = [pytest.mark.engine, pytest.mark.redis, pytest.mark.timeout(300)]
LINES = 80
SLOWLY = f"i=0; while [ $i -lt {LINES} ]; do echo line $i; i=$((i+1)); sleep 0.03; done"
LONG = 3_000_000
FLOOD = f"head -c {LONG} /dev/zero | tr '\\0' x"
STALLED = 6


def deltas(events):
    return [event for event in events if event["type"] == "tool.output.delta"]


def has_ended(events) -> bool:
    return events[-1]["type"] == "tool.call.completed"


def two_deltas(events) -> bool:
    return len(deltas(events)) == 2 or has_ended(events)


def follow(agent: Agent, last: str, enough) -> tuple[list[dict], str]:
    """Read the stream from there until `enough` of its events; and the id of the last."""
    seen: list[dict] = []
    headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last} if last else {})
    with (
        agent.installation.http(agent.key) as http,
        http.stream("GET", f"/v1/sessions/{agent.session}/events", headers=headers) as answer,
    ):
        for line in answer.iter_lines():
            if line.startswith("id: "):
                last = line.removeprefix("id: ")
            elif line.startswith("data: {"):
                seen.append(json.loads(line.removeprefix("data: ")))
                if enough(seen):
                    return seen, last
    raise AssertionError("the stream ended early")


def test_output_comes_while_the_command_prints_and_a_reader_that_breaks_off_in_it_goes_on_where_it_was(installation):
    agent = installation.open_session()
    told: list[str] = []

    async def on_progress(_done, _total, message):
        told.append(message)

    async def go():
        async with agent.client("auto") as client:
            call = asyncio.create_task(
                client.call_tool("workspace_exec", {"command": SLOWLY}, progress_callback=on_progress)
            )
            first, last = await asyncio.to_thread(follow, agent, "", two_deltas)
            was_running = not call.done()
            rest, _ = await asyncio.to_thread(follow, agent, last, has_ended)
            return was_running, first, rest, await call

    was_running, first, rest, result = asyncio.run(go())
    assert was_running
    events = [*first, *rest]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    text = "".join(f"line {number}\n" for number in range(LINES))
    assert "".join(event["payload"]["delta"] for event in deltas(events)) == text
    assert result.structured_content["stdout"] == text
    assert 2 < len(deltas(events)) < LINES  # gathered, not one for each line
    (counted,) = [event["payload"] for event in events if event["type"] == "tool.output.completed"]
    assert counted["stdout"]["bytes"] == len(text)
    assert any(message.startswith("running: line ") for message in told)


SERVER = """python3 -c "
import socket, sys, time
socket.create_server(('127.0.0.1', 0))
for wait in map(float, sys.argv[1:]):
    time.sleep(wait)
    print('Listening at', time.time(), flush=True)
time.sleep(1.2)
" {waits}"""
READABLE_S = 0.15
"""Seconds from a line's print until a client can read it."""


class Sightings(dict[str, float]):
    """When each printed line was read first."""

    def read(self, text: str) -> None:
        for line in text.splitlines():
            self.setdefault(line, time.time())

    def are_prompt(self, ends: list[float]) -> None:
        """Every line was read before its command, which then waits, ended; the quickest of them in time.

        The quickest, since the machine is shared.
        """
        lines = sorted((line for line in self if line.startswith("Listening at ")), key=self.__getitem__)
        assert len(lines) == len(ends)
        assert all(self[line] < end - 0.5 for line, end in zip(lines, ends, strict=True))
        assert min(self[line] - float(line.split()[-1]) for line in lines) < READABLE_S


def test_a_line_is_readable_at_once_though_silence_follows(installation):
    agent = installation.open_session()
    agent.call("true")
    told, streamed, ends = Sightings(), Sightings(), []
    last_call = threading.Event()

    async def on_progress(_done, _total, message):
        told.read(message.removeprefix("running: "))

    def enough(events):
        if events[-1]["type"] == "tool.output.delta":
            streamed.read(events[-1]["payload"]["delta"])
        return last_call.is_set() and has_ended(events)

    async def go():
        async with agent.client("auto") as client:
            stream = asyncio.create_task(asyncio.to_thread(follow, agent, "", enough))
            runs = ("0", "0.05", "0.3", "0 0.03", "0.2 0.07", "0.2 0.13")
            for waits in runs:
                if waits is runs[-1]:
                    last_call.set()
                given = {"command": SERVER.format(waits=waits)}
                result = await client.call_tool("workspace_exec", given, progress_callback=on_progress)
                ends.extend([time.time()] * len(waits.split()))
                assert not result.is_error, result.content[0].text
            await stream

    asyncio.run(go())
    told.are_prompt(ends)
    streamed.are_prompt(ends)


def stall(opened: ExitStack, agent: Agent, request: bytes) -> None:
    """A client that asks and takes nothing of the answer."""
    where = urlsplit(agent.installation.url)
    made = opened.enter_context(socket.socket())
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.connect((where.hostname, where.port))
    made.sendall(request)


def reading_nothing(opened: ExitStack, agent: Agent) -> None:
    host = urlsplit(agent.installation.url).netloc
    for _ in range(STALLED):
        path = f"/v1/sessions/{agent.session}/events"
        head = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {agent.key}\r\n"
        stall(opened, agent, f"{head}Accept: text/event-stream\r\n\r\n".encode())


def calling(opened: ExitStack, agent: Agent, command: str) -> None:
    """A call of the newer era, with progress, whose client takes nothing of what it is told."""
    meta = {
        "progressToken": "p",
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "deaf", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"name": "workspace_exec", "arguments": {"command": command}, "_meta": meta}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    head = (
        f"POST /mcp HTTP/1.1\r\nHost: {urlsplit(agent.installation.url).netloc}\r\n"
        f"Authorization: Bearer {agent.token}\r\nContent-Type: application/json\r\n"
        "Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\n"
        f"Mcp-Method: tools/call\r\nMcp-Name: workspace_exec\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    stall(opened, agent, (head + body).encode())


def completed(agent: Agent) -> list:
    return [event.payload for event in agent.events() if event.type == "tool.call.completed"]


def test_readers_that_take_nothing_slow_no_command_and_what_was_cut_is_counted(installation):
    alone, watched = installation.open_session(), installation.open_session()
    assert alone.call(FLOOD).details["stdout"]["bytes"] == LONG
    with ExitStack() as opened:
        reading_nothing(opened, watched)
        calling(opened, watched, FLOOD)
        wait_for(lambda: len(completed(watched)) == 1, "the call of the client that takes nothing", DEADLINE_S)
        again = watched.call(FLOOD)
    (counted, _) = [event.payload for event in watched.events() if event.type == "tool.output.completed"]
    assert (counted["stdout"]["bytes"], again.details["stdout"]["bytes"]) == (LONG, LONG)
    assert counted["stdout"]["shown"] < LONG
    assert len(again.output.encode()) < LONG
    (quick,), slow = completed(alone), completed(watched)
    assert max(each["duration_ms"] for each in slow) < 3 * quick["duration_ms"] + 5000
    watched.is_lawful()


ENDINGS = {
    "exited": {"command": "printf out; printf err >&2; exit 3"},
    "signaled": {"command": "printf out; printf err >&2; kill -9 $$"},
    "timed_out": {"command": "printf out; printf err >&2; sleep 60", "timeout_s": 0.5},
    "spawn_failed": {"argv": ["no-such-command"]},
}


@pytest.mark.parametrize("mode", ["legacy", "auto"])
@pytest.mark.parametrize("outcome", list(ENDINGS))
def test_a_command_that_fails_has_its_exit_and_its_output_in_a_valid_structured_result(installation, mode, outcome):
    agent = installation.open_session()

    async def go():
        async with agent.client(mode) as client:
            result = await client.call_tool("workspace_exec", ENDINGS[outcome])
            await client.session.validate_tool_result("workspace_exec", result)  # the client's own, for successes only
            return result

    result = asyncio.run(go())
    found = result.structured_content
    assert (result.is_error, found["outcome"]) == (True, outcome)
    wanted = {"exited": (3, None), "signaled": (None, 9)}.get(outcome)
    assert wanted in (None, (found["exit_code"], found["signal"]))
    if outcome != "spawn_failed":
        assert (found["stdout"], found["stderr"]) == ("out", "err")
    assert found["duration_ms"] >= (500 if outcome == "timed_out" else 0)


def test_a_cancelled_command_that_ran_has_its_output_in_its_structured_result(installation):
    agent = installation.open_session()

    async def go():
        async with agent.client("auto") as client:
            call = asyncio.create_task(client.call_tool("workspace_exec", {"command": "printf out; sleep 60"}))
            events, _ = await asyncio.to_thread(follow, agent, "", lambda seen: bool(deltas(seen)))
            running = deltas(events)[0]["payload"]["tool_call_id"]
            with installation.http(agent.key) as http:
                path = f"/v1/sessions/{agent.session}/calls/{running}/cancel"
                (await asyncio.to_thread(http.post, path)).raise_for_status()
            return await call

    result = asyncio.run(go())
    found = result.structured_content
    assert (result.is_error, found["outcome"], found["stdout"]) == (True, "cancelled", "out")
