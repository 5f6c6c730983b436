"""Who may use the MCP endpoint, and what they can reach."""

from __future__ import annotations

import json

import httpx2
import pytest

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}
DISCOVER = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "server/discover",
    "params": {
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        }
    },
}
MODERN = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "server/discover"}


@pytest.fixture
def stack(standing):
    return standing


def post(stack, token, body, **headers):
    raw = token.encode() if isinstance(token, str) else token
    auth = {b"Authorization": b"Bearer " + raw} if raw is not None else {}
    all_headers = {b"Accept": b"application/json, text/event-stream", **auth}
    all_headers |= {name.encode(): value.encode() for name, value in headers.items()}
    return httpx2.post(stack.mcp_url, json=body, headers=all_headers, timeout=30.0)


@pytest.mark.parametrize("token", [None, b"csdk_ses_wrong", b"x y", "é".encode()])
@pytest.mark.parametrize(("body", "headers"), [(INITIALIZE, {}), (DISCOVER, MODERN)])
def test_without_a_good_token_nothing_is_answered(stack, token, body, headers):
    answer = post(stack, token, body, **headers)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert "token" in answer.json()["error"]["message"]


@pytest.mark.parametrize(("body", "headers"), [(INITIALIZE, {}), (DISCOVER, MODERN)])
def test_an_api_key_does_not_open_the_mcp_endpoint(stack, body, headers):
    assert post(stack, stack.key(), body, **headers).status_code == 401


def test_a_session_token_does_not_open_the_api(stack):
    _, token = stack.open_session()
    with stack.http(token) as client:
        assert client.get("/v1/sessions").status_code == 401


@pytest.mark.parametrize(("body", "headers"), [(INITIALIZE, {}), (DISCOVER, MODERN)])
def test_the_token_of_a_closed_session_is_refused_at_once(stack, body, headers):
    session, token = stack.open_session()
    assert post(stack, token, body, **headers).status_code == 200
    stack.services.sessions.close(session.tenant_id, session.id)
    assert post(stack, token, body, **headers).status_code == 401


def test_an_open_mcp_session_ends_with_its_token(stack):
    session, token = stack.open_session()
    mcp_session = post(stack, token, INITIALIZE).headers["mcp-session-id"]
    stack.services.sessions.close(session.tenant_id, session.id)
    ping = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
    assert post(stack, token, ping, **{"Mcp-Session-Id": mcp_session}).status_code == 401


def test_the_mcp_session_of_another_token_does_not_exist(stack):
    _, token = stack.open_session()
    _, other = stack.open_session()
    mcp_session = post(stack, token, INITIALIZE).headers["mcp-session-id"]
    ping = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
    known = {"Mcp-Session-Id": mcp_session}
    assert post(stack, token, ping, **known).status_code == 200
    assert post(stack, other, ping, **known).status_code == 404
    assert post(stack, other, ping, **{"Mcp-Session-Id": "0" * 32}).status_code == 404


def test_a_call_with_one_token_leaves_no_trace_in_another_session(stack, helpers):
    mine, token = stack.open_session()
    other, _ = stack.open_session()

    async def go():
        async with stack.client(token, "auto") as client:
            await client.call_tool("workspace_read", {"path": "a"})

    helpers.within(go())
    assert "tool.call.completed" in stack.types(mine)
    assert stack.types(other) == ["session.created"]


@pytest.mark.parametrize(("body", "headers"), [(INITIALIZE, {}), (DISCOVER, MODERN)])
@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "localhost.evil.example", "127.0.0.1.evil.example:1", ""]
)
def test_a_foreign_host_name_is_refused(stack, body, headers, host):
    _, token = stack.open_session()
    assert post(stack, token, body, Host=host, **headers).status_code == 421


@pytest.mark.parametrize(("body", "headers"), [(INITIALIZE, {}), (DISCOVER, MODERN)])
@pytest.mark.parametrize(
    "origin", ["http://evil.example", "https://localhost.evil.example", "null", "http://localhost@evil"]
)
def test_a_foreign_origin_is_refused(stack, body, headers, origin):
    _, token = stack.open_session()
    assert post(stack, token, body, Origin=origin, **headers).status_code == 403


@pytest.mark.parametrize("origin", ["http://localhost:6274", "http://127.0.0.1"])
def test_a_page_of_this_machine_is_let_through(stack, origin):
    _, token = stack.open_session()
    assert post(stack, token, DISCOVER, Origin=origin, **MODERN).status_code == 200


def test_a_body_that_is_too_large_is_refused_unread(stack):
    _, token = stack.open_session()
    body = {**DISCOVER, "padding": "x" * (4 * 1024 * 1024)}
    assert post(stack, token, body, **MODERN).status_code == 413


@pytest.mark.parametrize("headers", [{}, {**MODERN, "Mcp-Method": "tools/call", "Mcp-Name": "workspace_read"}])
def test_deep_json_ends_the_request_and_nothing_else(stack, headers):
    _, token = stack.open_session()
    deep = "[" * 100_000 + "]" * 100_000
    answer = httpx2.post(
        stack.mcp_url,
        content=json.dumps(INITIALIZE)[:-1] + f', "x": {deep}}}',
        headers={
            "Authorization": f"Bearer {token}",
            "Accept": "application/json, text/event-stream",
            "Content-Type": "application/json",
            **headers,
        },
        timeout=30.0,
    )
    assert answer.status_code in (200, 400)
    assert post(stack, token, DISCOVER, **MODERN).status_code == 200
