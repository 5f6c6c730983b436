"""Clients that are killed: what has not begun is withdrawn, and what runs is joined within the grace or cancelled after it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from contextlib import contextmanager

import httpx2
import pytest

from codesdk.mcphost.tool_calls.caller import CALL_ID_KEY

GRACE_S = 4.0
CLIENT = """
import asyncio, json, sys
import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
url, token, mode, tool, arguments, call_id = sys.argv[1:]

async def go():
    http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=60)
    async with http, Client(streamable_http_client(url, http_client=http), mode=mode) as client:
        await client.call_tool(tool, json.loads(arguments), meta={"codesdk/callId": call_id})

asyncio.run(go())
"""
BRIDGE = """
import sys
from codesdk.mcphost.stdio_bridge import main as bridge
bridge.run(sys.argv[1], sys.argv[2])
"""
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
READ = ("workspace_read", {"path": "a.txt"})
OTHER = ("workspace_read", {"path": "b.txt"})
MAKE = ("workspace_exec", {"command": "make"})
KINDS = ["http-legacy", "http-auto", "bridge-legacy", "bridge-auto"]


@pytest.fixture(scope="module")
def brief(tmp_path_factory, helpers):
    """A stack that waits for a client for a few seconds."""
    with helpers.running(tmp_path_factory.mktemp("gone"), 60.0, gone_client_grace_s=GRACE_S) as built:
        yield built


@pytest.fixture
def stack(brief):
    brief.worker.ran.clear()
    brief.worker.cancelled.clear()
    brief.worker.gate.set()
    yield brief
    brief.worker.gate.set()


@contextmanager
def client(stack, token, kind, call, call_id="1"):
    """A client's process, or its bridge, that makes one call; it is killed at the end."""
    transport, mode = kind.split("-")
    tool, arguments = call
    if transport == "http":
        given = [CLIENT, stack.mcp_url, token, mode, tool, json.dumps(arguments), call_id]
    else:
        given = [BRIDGE, stack.mcp_url, token]
    with subprocess.Popen(
        [sys.executable, "-c", *given], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            if transport == "bridge":
                for line in asks(mode, tool, arguments, call_id):
                    process.stdin.write(f"{json.dumps({'jsonrpc': '2.0', **line})}\n".encode())
                process.stdin.flush()
            yield process
        finally:
            process.kill()


def asks(mode, tool, arguments, call_id):
    meta = {CALL_ID_KEY: call_id, **(META if mode == "auto" else {})}
    call = {"id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments, "_meta": meta}}
    if mode == "auto":
        return [call]
    return [{"id": 0, "method": "initialize", "params": HELLO}, {"method": "notifications/initialized"}, call]


def again(stack, helpers, token, call, call_id="1"):
    async def go():
        async with stack.client(token, "auto") as one:
            return await one.call_tool(*call, meta={CALL_ID_KEY: call_id})

    return helpers.within(go())


def last(stack, session):
    return stack.services.log.read(session.id)[-1]


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_clients_running_call_is_joined_by_its_id_within_the_grace(stack, helpers, kind):
    session, token = stack.open_session()
    stack.worker.gate.clear()
    with client(stack, token, kind, READ):
        helpers.eventually(lambda: stack.worker.ran)

    async def go():
        await asyncio.sleep(1.5)
        async with stack.client(token, kind.split("-")[1]) as one:
            joined = asyncio.create_task(one.call_tool(*READ, meta={CALL_ID_KEY: "1"}))
            await asyncio.sleep(GRACE_S)
            stack.worker.gate.set()
            return await joined

    result = helpers.within(go())
    assert result.structured_content["content"] == "hello\n"
    assert (stack.worker.ran, stack.worker.cancelled) == (["workspace.read"], [])
    assert stack.types(session).count("tool.call.requested") == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_clients_running_call_is_cancelled_after_the_grace_and_lets_later_ones_through(stack, helpers, kind):
    session, token = stack.open_session()
    stack.worker.gate.clear()
    with client(stack, token, kind, READ):
        helpers.eventually(lambda: stack.worker.ran)
    left_at = time.monotonic()
    helpers.eventually(lambda: stack.worker.cancelled, 20.0)
    assert GRACE_S - 1.0 < time.monotonic() - left_at < GRACE_S + 5.0
    helpers.eventually(lambda: stack.types(session)[-1] == "tool.call.completed")
    stack.worker.gate.set()
    assert not again(stack, helpers, token, OTHER, call_id="2").is_error
    failed = again(stack, helpers, token, READ)
    assert (failed.meta["codesdk/call"]["code"], len(stack.worker.ran)) == ("CANCELLED", 2)


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_clients_queued_call_never_starts_and_its_id_is_free_again(stack, helpers, kind):
    _, busy = stack.open_session()
    session, token = stack.open_session()
    stack.worker.gate.clear()
    with client(stack, busy, "http-auto", OTHER):
        helpers.eventually(lambda: stack.worker.ran)
        with client(stack, token, kind, READ):
            helpers.eventually(lambda: "tool.call.policy_evaluated" in stack.types(session))
        helpers.eventually(lambda: stack.types(session)[-1] == "tool.call.denied", 3.0)
        denied = last(stack, session).payload
        assert denied["code"] == "CANCELLED"
        assert "its client left" in denied["reason"]
        stack.worker.gate.set()
    result = again(stack, helpers, token, READ)
    assert result.structured_content["content"] == "hello\n"
    assert stack.worker.ran == ["workspace.read"] * 2
    assert stack.types(session).count("tool.call.started") == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_clients_approval_is_withdrawn_and_asked_again_under_the_same_id(stack, helpers, kind):
    session, token = stack.open_session()
    with client(stack, token, kind, MAKE):
        first = stack.pending(session)
    helpers.eventually(lambda: stack.types(session)[-1] == "tool.call.denied", 5.0)
    assert stack.services.approvals.find(session.tenant_id, first.id).state == "cancelled"
    with client(stack, token, kind, MAKE):
        assert stack.pending(session).id != first.id
    assert "workspace.exec" not in stack.worker.ran


def test_a_deleted_handshake_session_leaves_its_running_call_the_grace(stack, helpers):
    _, token = stack.open_session()
    stack.worker.gate.clear()
    headers = {
        "Authorization": f"Bearer {token}",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2025-11-25",
    }

    async def go():
        async with httpx2.AsyncClient(headers=headers, timeout=30) as http:
            hello, _, call = ({"jsonrpc": "2.0", **each} for each in asks("legacy", *READ, "1"))
            opened = await http.post(stack.mcp_url, json=hello)
            ours = {"Mcp-Session-Id": opened.headers["mcp-session-id"]}
            waiting = asyncio.create_task(http.post(stack.mcp_url, json=call, headers=ours))
            await asyncio.to_thread(helpers.eventually, lambda: stack.worker.ran)
            assert (await http.delete(stack.mcp_url, headers=ours)).status_code == 200
            await asyncio.wait([waiting])
            await asyncio.sleep(1.5)
        async with stack.client(token, "legacy") as one:
            joined = asyncio.create_task(one.call_tool(*READ, meta={CALL_ID_KEY: "1"}))
            await asyncio.sleep(0.5)
            stack.worker.gate.set()
            return await joined

    assert helpers.within(go()).structured_content["content"] == "hello\n"
    assert (stack.worker.ran, stack.worker.cancelled) == (["workspace.read"], [])


def test_a_client_that_resumes_its_stream_keeps_its_call(stack, helpers):
    """An open stream of the MCP session counts, whichever request it belongs to."""
    session, token = stack.open_session()
    stack.worker.gate.clear()
    headers = {
        "Authorization": f"Bearer {token}",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2025-11-25",
    }

    async def go():
        async with httpx2.AsyncClient(headers=headers, timeout=30) as http:
            hello, _, call = ({"jsonrpc": "2.0", **each} for each in asks("legacy", *READ, "1"))
            opened = await http.post(stack.mcp_url, json=hello)
            ours = {"Mcp-Session-Id": opened.headers["mcp-session-id"]}
            async with http.stream("POST", stack.mcp_url, json=call, headers=ours) as stream:
                first = await anext(line async for line in stream.aiter_lines() if line.startswith("id: "))
                await asyncio.to_thread(helpers.eventually, lambda: stack.worker.ran)
            await asyncio.sleep(1.5)
            resumed = {**ours, "Last-Event-ID": first.removeprefix("id: ")}
            async with http.stream("GET", stack.mcp_url, headers=resumed) as stream:
                await asyncio.sleep(GRACE_S)
                stack.worker.gate.set()
                return await anext(line async for line in stream.aiter_lines() if line.startswith("data: {"))

    assert "hello" in helpers.within(go())
    assert stack.worker.cancelled == []
    assert stack.types(session).count("tool.call.requested") == 1
