"""Many clients at once, and one for a long time: everybody is answered, and their resources are released."""

from __future__ import annotations

import asyncio
import json

import httpx2
import pytest

from codesdk.mcphost.server import event_store

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "load", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
SESSIONS = 100
STREAMS = 200
"""Of two sessions; `bench/mcp_host.py` opens a thousand. Client and server share this process's open files here."""
LONG = 200
LIMIT_S = 90.0


def message(method, number=1, **params):
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": {**params, "_meta": META}}


def headers(token, method, **more):
    return {
        "Authorization": f"Bearer {token}",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": method,
        **more,
    }


async def read(http, stack, token):
    """One call; its structured content."""
    body = message("tools/call", name="workspace_read", arguments={"path": "a.txt"})
    told = await http.post(
        stack.mcp_url, json=body, headers=headers(token, "tools/call", **{"Mcp-Name": body["params"]["name"]})
    )
    assert told.status_code == 200, told.text
    text = told.text[told.text.index("{") :].splitlines()[0]
    return json.loads(text)["result"]["structuredContent"]["content"]


def client():
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
    return httpx2.AsyncClient(timeout=LIMIT_S, limits=limits, trust_env=False)


def test_a_hundred_sessions_that_call_at_once_are_all_answered(standing, helpers):
    principal, _ = standing.principal()
    tokens = [standing.open_for(principal)[1] for _ in range(SESSIONS)]

    async def go():
        async with client() as http:
            return await asyncio.gather(*(read(http, standing, token) for token in tokens))

    assert helpers.within(go(), LIMIT_S) == ["hello\n"] * SESSIONS


async def listen(http, stack, token):
    """A stream of the newer era."""
    body = message("subscriptions/listen", notifications={"toolsListChanged": True})
    request = http.build_request("POST", stack.mcp_url, json=body, headers=headers(token, body["method"]))
    answer = await http.send(request, stream=True)
    assert answer.status_code == 200
    return answer.aclose


async def initialize(http, stack, token):
    """An MCP session of the handshake era: the answer, and the headers of what follows."""
    plain = {"Authorization": f"Bearer {token}", "Accept": "application/json, text/event-stream"}
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "load", "version": "1"}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    answer = await http.post(stack.mcp_url, json=body, headers=plain)
    named = {"Mcp-Session-Id": answer.headers.get("mcp-session-id", ""), "MCP-Protocol-Version": "2025-11-25"}
    return answer, {**plain, **named}


async def stand(http, stack, token):
    """A standing stream of the handshake era; its client ends its session when it leaves."""
    answer, ours = await initialize(http, stack, token)
    assert answer.status_code == 200
    said = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert (await http.post(stack.mcp_url, json=said, headers=ours)).status_code == 202
    stream = await http.send(http.build_request("GET", stack.mcp_url, headers=ours), stream=True)
    assert stream.status_code == 200

    async def leave():
        await stream.aclose()
        await http.delete(stack.mcp_url, headers=ours)

    return leave


@pytest.mark.parametrize("begin", [listen, stand])
def test_idle_streams_hold_up_nobody_and_are_forgotten_when_their_clients_leave(standing, helpers, begin):
    principal, _ = standing.principal()
    tokens = [standing.open_for(principal)[1] for _ in range(STREAMS // 100)]
    caller = standing.open_for(principal)[1]
    helpers.eventually(lambda: not standing.mcp.list_changes.followed, 30)

    async def go():
        async with client() as http:
            leave = await asyncio.gather(*(begin(http, standing, token) for token in tokens * 100))
            found = [await read(http, standing, caller) for _ in range(3)]
            followed = standing.mcp.list_changes.followed
            await asyncio.gather(*(each() for each in leave))
            return found, followed

    assert helpers.within(go(), LIMIT_S) == (["hello\n"] * 3, len(tokens))
    helpers.eventually(lambda: not standing.mcp.list_changes.followed, 30)


def test_one_session_takes_no_more_mcp_sessions_than_its_share(standing, helpers, monkeypatch):
    monkeypatch.setattr(event_store, "MAX_PER_SESSION", 3)
    _, token = standing.open_session()
    _, other = standing.open_session()

    async def go():
        async with client() as http:
            return [(await initialize(http, standing, each))[0].status_code for each in [token] * 4 + [other]]

    assert helpers.within(go(), LIMIT_S) == [200, 200, 200, 503, 200]


def test_a_long_session_answers_its_last_call_as_its_first_and_keeps_no_more_than_it_may(standing, helpers):
    session, token = standing.open_session()

    async def go():
        async with standing.client(token, "legacy") as mcp:
            for _ in range(LONG):
                answer = await mcp.call_tool("workspace_read", {"path": "a.txt"})
                assert answer.structured_content["content"] == "hello\n"
            held = [
                len(transport._event_store._events)
                for transport in standing.mcp._manager._server_instances.values()
                if transport._event_store is not None
            ]
            return max(held)

    assert helpers.within(go(), LIMIT_S) <= event_store.MAX_EVENTS
    assert standing.services.log.head(session.id) == 1 + 5 * LONG  # requested, judged, approved, started, completed
