"""Streams end with their credential, and if the client reads nothing; everything else continues."""

from __future__ import annotations

import asyncio
import json
import socket
from urllib.parse import urlsplit

import anyio
import httpx2
import pytest
from mcp.server import _streamable_http_modern
from sqlalchemy import text as sql
from sse_starlette import EventSourceResponse

from codesdk.api import http_timeouts
from codesdk.mcphost.server import request_registry
from codesdk.mcphost.server.request_registry import RequestCredential, RequestRegistry
from codesdk.mcphost.session_resources.uris import artifact_uri

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
ENDS = {
    "expired": "UPDATE session_tokens SET expires_at = 1 WHERE session_id = :session",
    "revoked": "UPDATE session_tokens SET revoked_at = 1 WHERE session_id = :session",
    "disabled": "UPDATE principals SET disabled_at = 1 WHERE id = :principal",
    "demoted": "UPDATE principals SET roles = '[]' WHERE id = :principal",
    "closed": None,
}
LOOKS = 0.2


@pytest.fixture(scope="module")
def stack(tmp_path_factory, helpers):
    """A stack that looks at credentials again and again."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(request_registry, "RECHECK_S", LOOKS)
        with helpers.running(tmp_path_factory.mktemp("endings"), 60.0) as built:
            yield built


def end(stack, session, how):
    if ENDS[how] is None:
        stack.services.sessions.close(session.tenant_id, session.id)
        return
    given = {"session": session.id, "principal": session.principal_id}
    with stack.services.database.writer.begin() as connection:
        connection.execute(sql(ENDS[how]), {name: given[name] for name in given if f":{name}" in ENDS[how]})


def headers(token, **more):
    return {"Authorization": f"Bearer {token}", "Accept": "application/json, text/event-stream", **more}


async def listening(http, token):
    """A stream of the newer era, for changes of the tools alone."""
    params = {"notifications": {"toolsListChanged": True}, "_meta": META}
    body = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params}
    named = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "subscriptions/listen"}
    return http.build_request("POST", "/mcp", json=body, headers=headers(token, **named))


async def standing(http, token):
    """The standing stream of the handshake era."""
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    opened = await http.post("/mcp", json=body, headers=headers(token))
    named = {"Mcp-Session-Id": opened.headers["mcp-session-id"], "MCP-Protocol-Version": "2025-11-25"}
    return http.build_request("GET", "/mcp", headers=headers(token, **named))


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("stream", [listening, standing])
def test_a_stream_ends_with_its_credential_and_no_other_does(stack, helpers, stream, how):
    session, token = stack.open_session()
    _, other = stack.open_session()

    async def go():
        async with httpx2.AsyncClient(base_url=stack.url, timeout=30) as http:
            theirs = await http.send(await stream(http, other), stream=True)
            mine = await http.send(await stream(http, token), stream=True)
            assert (mine.status_code, theirs.status_code) == (200, 200)
            await asyncio.to_thread(end, stack, session, how)
            async for _ in mine.aiter_bytes():
                pass  # to its end, which comes as that of a stream that is whole
            return theirs.is_stream_consumed

    assert helpers.within(go()) is False


@pytest.mark.parametrize("how", ["expired", "disabled"])
def test_a_call_that_waits_is_answered_no_more_and_withdrawn(stack, helpers, how):
    session, token = stack.open_session()
    params = {"name": "workspace_exec", "arguments": {"command": "make"}, "_meta": META}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    named = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "workspace_exec"}

    async def go():
        async with httpx2.AsyncClient(base_url=stack.url, timeout=30) as http:
            waiting = asyncio.create_task(http.post("/mcp", json=body, headers=headers(token, **named)))
            await asyncio.to_thread(stack.pending, session)
            await asyncio.to_thread(end, stack, session, how)
            return await waiting

    told = helpers.within(go())
    assert told.status_code == 401 or "result" not in told.text
    helpers.eventually(lambda: stack.types(session)[-1] == "tool.call.denied", 30)


@pytest.mark.anyio
async def test_a_credential_that_cannot_be_looked_at_now_keeps_its_streams():
    seen = []

    async def is_good(admitted):
        seen.append(admitted.session)
        if admitted.session == "away":
            raise OSError("no database")
        return admitted.session != "bad"

    async def send(_message):
        seen.append("sent")

    requests, ended = RequestRegistry(is_good), []

    async def answer(session):
        with requests.answering(RequestCredential("token", None, session), send) as one:
            await anyio.sleep(60)
        ended.append((session, one.ended))
        await one.finish()

    async with anyio.create_task_group() as group:
        for session in ("good", "bad", "away", "bad"):
            group.start_soon(answer, session)
        await anyio.wait_all_tasks_blocked()
        await requests.look()
        await anyio.wait_all_tasks_blocked()
        assert ended == [("bad", True)] * 2
        assert "sent" not in seen  # nothing was begun
        group.cancel_scope.cancel()
    assert requests._open == {}


def test_a_client_that_takes_nothing_of_its_answers_is_let_go(stack, helpers, monkeypatch):
    monkeypatch.setattr(http_timeouts, "SEND_BUFFER_TIMEOUT_S", 0.5)
    lost, plain = [], http_timeouts.TimeoutH11Protocol.connection_lost

    def connection_lost(self, exc):
        lost.append(self.client)
        plain(self, exc)

    monkeypatch.setattr(http_timeouts.TimeoutH11Protocol, "connection_lost", connection_lost)
    session, token = stack.open_session()
    artifacts = stack.services.artifacts
    kept = artifacts.put(b"x" * 1024 * 1024, session.tenant_id, session.id, content_type="text/plain", name="n")
    stack.services.writer.run(lambda unit: artifacts.record(unit, kept))
    params = {"uri": artifact_uri(kept.id), "_meta": META}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": params}).encode()
    named = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "resources/read", "Mcp-Name": params["uri"]}
    given = {"Host": "127.0.0.1", "Content-Type": "application/json", "Content-Length": str(len(body))}
    lines = [f"{name}: {value}" for name, value in {**given, **headers(token, **named)}.items()]
    request = "\r\n".join(["POST /mcp HTTP/1.1", *lines, "", ""]).encode() + body
    parts = urlsplit(stack.url)
    with socket.socket() as opened:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        opened.settimeout(10)
        opened.connect((parts.hostname, parts.port))
        for _ in range(16):  # more than the kernel keeps for both sides
            opened.sendall(request)
        # Nothing is read and nothing is closed here: it is the other side that lets go.
        helpers.eventually(lambda: opened.getsockname() in lost, 30)
    helpers.eventually(lambda: not stack.mcp.open_requests._open, 30)


@pytest.mark.parametrize("many", [5])
def test_who_makes_too_many_requests_in_a_time_is_told_when_to_come_again(stack, monkeypatch, many):
    throttle = stack.mcp.app._throttle
    monkeypatch.setattr(throttle, "_burst", float(many))
    monkeypatch.setattr(throttle, "_per_s", 0.01)
    _, token = stack.open_session()
    _, other = stack.open_session()
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": META}}
    named = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/list"}
    with stack.http() as http:
        told = [http.post("/mcp", json=body, headers=headers(token, **named)) for _ in range(many + 2)]
        theirs = http.post("/mcp", json=body, headers=headers(other, **named))
    assert [answer.status_code for answer in told] == [200] * many + [429] * 2
    assert 0 < int(told[-1].headers["retry-after"]) <= 100
    assert theirs.status_code == 200


@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_a_call_that_takes_its_time_is_heard_of_every_fifteen_seconds_at_the_latest(stack, helpers, monkeypatch, era):
    # Both are the libraries': were they longer, clients with a limit of their own on silence would give up.
    assert max(_streamable_http_modern._SSE_PING_INTERVAL, EventSourceResponse.DEFAULT_PING_INTERVAL) <= 15
    monkeypatch.setattr(_streamable_http_modern, "_SSE_PING_INTERVAL", 0.1)
    monkeypatch.setattr(EventSourceResponse, "DEFAULT_PING_INTERVAL", 1)
    _, token = stack.open_session()
    stack.worker.gate.clear()

    async def go():
        async with httpx2.AsyncClient(base_url=stack.url, timeout=30) as http:
            named = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "workspace_read"}
            if era == "legacy":
                request = await standing(http, token)
                named = {"Mcp-Session-Id": request.headers["mcp-session-id"], "MCP-Protocol-Version": "2025-11-25"}
            params = {"name": "workspace_read", "arguments": {"path": "a"}, "_meta": META if era == "modern" else {}}
            body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
            async with http.stream("POST", "/mcp", json=body, headers=headers(token, **named)) as answer:
                lines = answer.aiter_lines()
                heard = await anext(line async for line in lines if line.startswith(":"))
                stack.worker.gate.set()
                return heard, [line async for line in lines if line.startswith("data: {")]

    try:
        heard, told = helpers.within(go())
    finally:
        stack.worker.gate.set()
    assert heard.startswith(":")
    assert "hello" in told[-1]
