"""A tenant's tools over HTTP and MCP: its own sessions see and call them, nobody else learns that they exist."""

from __future__ import annotations

import shutil

import pytest
from mcp.shared.exceptions import MCPError

from integration.api.test_mcp_calls import details

MANIFEST = """name: acme.count
version: 1.0.0
title: Count
description: Counts lines of a file for acme.
classification: read-only
runs: {argv: [wc, {arg: /path}]}
input_schema:
  type: object
  additionalProperties: false
  properties:
    path: {type: string}
"""


@pytest.fixture
def tools(stack, tmp_path):
    """A function that puts a file into a tenant's directory, and takes it up."""
    registry = stack.services.registry
    directory = tmp_path / "tools"
    directory.mkdir()
    registry._tenants._directory = directory

    def put(tenant_id, text):
        (directory / tenant_id).mkdir(exist_ok=True)
        (directory / tenant_id / "own.yaml").write_text(text)
        registry.refresh()

    yield put
    for place in directory.iterdir():
        shutil.rmtree(place)
    registry.refresh()
    registry._tenants._directory = None


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_only_the_tenants_own_sessions_list_and_call_its_tool(stack, helpers, tools, mode):
    ours, token = stack.open_session("acme")
    _, other = stack.open_session("umbrella")
    tools(ours.tenant_id, MANIFEST)

    async def listed(secret):
        async with stack.client(secret, mode) as client:
            return [tool.name for tool in (await client.list_tools()).tools]

    async def call(secret):
        async with stack.client(secret, mode) as client:
            return await client.call_tool("acme_count", {"path": "a"})

    assert "acme_count" in helpers.within(listed(token))
    assert "acme_count" not in helpers.within(listed(other))
    assert details(helpers.within(call(token)))["status"] == "completed"
    with pytest.raises((MCPError, BaseExceptionGroup)) as refused:
        helpers.within(call(other))
    assert "There is no tool acme_count" in str(_first(refused.value))


def test_the_catalog_and_policys_answers_are_the_callers_tenants(stack, tools):
    owner, key = stack.principal(tenant="acme")
    other = stack.key(tenant="umbrella")
    tools(owner.tenant_id, MANIFEST)
    question = {"tool": "acme.count", "input": {"path": "a"}}
    with stack.http(key) as http:
        names = {tool["name"]: tool for tool in http.get("/v1/tools").json()["tools"]}
        assert names["acme.count"]["schema_hash"].startswith("sha256:")
        assert http.post("/v1/policy/decide", json=question).json()["effect"] == "allow"
    with stack.http(other) as http:
        answer = http.get("/v1/tools").json()
        assert "acme.count" not in [tool["name"] for tool in answer["tools"]]
        said = http.post("/v1/policy/decide", json=question).json()
        assert (said["effect"], "no tool `acme.count`" in said["reason"]) == ("deny", True)


def test_a_broken_file_is_told_to_its_tenant_and_the_last_good_tools_stay(stack, tools):
    owner, key = stack.principal(tenant="acme")
    tools(owner.tenant_id, MANIFEST)
    tools(owner.tenant_id, MANIFEST.replace("title:", "titel:"))
    with stack.http(key) as http:
        answer = http.get("/v1/tools").json()
    assert "acme.count" in [tool["name"] for tool in answer["tools"]]
    assert "own.yaml:3:1" in answer["problems"]["tenant"]
    with stack.http(stack.key(tenant="umbrella")) as http:
        assert http.get("/v1/tools").json()["problems"] == {}


def _first(error):
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error
