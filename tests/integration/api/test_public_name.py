"""The API behind a name or a proxy."""

from __future__ import annotations

import pytest

from codesdk.tenancy.principal import Role

CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}


@pytest.fixture(scope="module")
def named(tmp_path_factory):
    from integration.api.conftest import running  # noqa: PLC0415

    more = {"public_url": "https://codesdk.example.com/box", "allowed_hosts": "api"}
    with running(tmp_path_factory.mktemp("named"), 10.0, **more) as built:
        yield built


@pytest.mark.parametrize(
    "host", ["codesdk.example.com", "codesdk.example.com:443", "CODESDK.example.com", "api:8765", "127.0.0.1"]
)
def test_it_answers_under_the_names_that_it_goes_by(named, host):
    with named.http() as client:
        assert client.get("/health", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["example.com", "evil.codesdk.example.com", "codesdk.example.com.evil", "api.evil", ""]
)
def test_it_answers_under_no_other_and_does_not_believe_a_proxys_headers(named, host):
    with named.http() as client:
        headers = {"Host": host, "X-Forwarded-Host": "codesdk.example.com"}
        assert client.get("/health", headers=headers).status_code == 421


def test_mcp_urls_are_public_whatever_name_the_caller_used(named):
    with named.http(named.key(Role.DEVELOPER)) as client:
        for host in ("127.0.0.1", "api"):
            made = client.post("/v1/sessions", json={}, headers={"Host": host}).json()
            assert made["mcp_url"] == "https://codesdk.example.com/box/mcp"


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("https://codesdk.example.com", 200),
        ("http://api:1234", 200),
        ("https://evil.example.com", 403),
        ("https://codesdk.example.com.evil", 403),
        ("null", 403),
    ],
)
def test_an_origin_of_mcp_passes_where_its_name_does(named, origin, status):
    _, token = named.open_session()
    headers = {
        "Host": "codesdk.example.com",
        "Origin": origin,
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2025-11-25",
    }
    opening = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}},
    }
    with named.http(token) as client:
        assert client.post("/mcp", json=opening, headers=headers).status_code == status
