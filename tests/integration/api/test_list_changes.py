"""A changed policy reaches connected clients: they are notified that their list of tools has changed."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import httpx2
import mcp_types as types
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from codesdk.mcphost.listings import list_changed

DENIED = """
version: 1
name: test
enable: [workspace.exec]
default: deny
rules:
  - {id: read, effect: allow, classification: read-only, reason: Reading is allowed.}
"""


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(list_changed, "POLL_S", 0.1)


def change(stack, text):
    (stack.settings.policies_dir / "policy.yaml").write_text(text)
    stack.services.bundles.refresh()


def test_a_client_of_the_handshake_era_hears_of_it_and_lists_fewer_tools(stack, helpers):
    _, token = stack.open_session()
    heard = asyncio.Event()

    async def go():
        async with stack.client(token, "legacy") as quiet:
            assert quiet.server_capabilities.tools.list_changed
            async with listening(stack, token, heard) as client:
                before = {tool.name for tool in (await client.list_tools()).tools}
                await asyncio.to_thread(change, stack, DENIED)
                await heard.wait()
                return before - {tool.name for tool in (await client.list_tools()).tools}

    assert helpers.within(go()) == {"workspace_exec", "workspace_write"}


@asynccontextmanager
async def listening(stack, token, heard):
    """A client of the handshake era that notes what it hears."""

    async def on_message(message):
        if isinstance(message, types.ToolListChangedNotification):
            heard.set()

    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=30) as http,
        Client(
            streamable_http_client(stack.mcp_url, http_client=http), mode="legacy", message_handler=on_message
        ) as client,
    ):
        yield client


def test_a_client_of_the_newer_era_hears_of_it_on_the_stream_that_it_opened(stack, helpers):
    _, token = stack.open_session()

    async def go():
        async with stack.client(token, "auto") as client, client.listen(tools_list_changed=True) as changes:
            await asyncio.to_thread(change, stack, DENIED)
            return await anext(aiter(changes))

    assert type(helpers.within(go())).__name__ == "ToolsListChanged"


def test_a_change_that_leaves_the_list_as_it_is_says_nothing(stack, helpers):
    _, token = stack.open_session()
    same = (stack.settings.policies_dir / "policy.yaml").read_text().replace("Reading is allowed.", "Read on.")

    async def go():
        async with stack.client(token, "auto") as client, client.listen(tools_list_changed=True) as changes:
            await asyncio.to_thread(change, stack, same)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(aiter(changes)), 0.7)

    helpers.within(go())


def test_who_left_is_forgotten(stack, helpers):
    _, token = stack.open_session()

    async def go():
        async with stack.client(token, "auto") as client, client.listen(tools_list_changed=True):
            assert stack.mcp.list_changes.followed == 1

    helpers.within(go())
    helpers.eventually(lambda: not stack.mcp.list_changes.followed)
