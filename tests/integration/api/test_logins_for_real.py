"""The official Python client logs in by itself: it finds the issuer, registers, lets its user log in, and calls a tool.

The issuer is `oidc-provider` from npm, a certified authorization server, with the Node of the same lock file.
"""

from __future__ import annotations

import json
import subprocess
import threading
from contextlib import contextmanager
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from mcp import Client
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientMetadata

from acceptance.agents.install import INSTALL_LIMIT_S, AgentPackage
from acceptance.conftest import program_or_skip
from stage import REPOSITORY

pytestmark = [pytest.mark.node, pytest.mark.timeout(INSTALL_LIMIT_S + 120)]

PEERS = AgentPackage(name="mcp-peers", binary="node_modules/node-linux-*/bin/node")
AUDIENCE = "https://codesdk.example.com/mcp"
CALLBACK = "http://127.0.0.1:9/callback"
START_S = 60.0


@contextmanager
def issuer(node):
    """A running provider; its URL."""
    line = [node, REPOSITORY / "tests/fixtures/oidc/provider.mjs", AUDIENCE]
    with subprocess.Popen(
        line,
        cwd=node.parents[3],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={},
        start_new_session=True,
    ) as process:
        timer = threading.Timer(START_S, process.kill)
        timer.start()
        try:
            url = process.stdout.readline().strip()
            timer.cancel()
            assert url.startswith("http://127.0.0.1:"), "the provider did not start"
            yield url
        finally:
            timer.cancel()
            process.kill()


class Memory:
    """Where the client keeps what it got."""

    def __init__(self):
        self.tokens = self.client = None

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens = tokens

    async def get_client_info(self):
        return self.client

    async def set_client_info(self, client_info):
        self.client = client_info


class User:
    """Logs in on the provider's pages and consents, as a person would in a browser."""

    def __init__(self, name):
        self._name = name
        self._arrived = ""

    async def visit(self, url):
        async with httpx2.AsyncClient(timeout=30, trust_env=False) as http:
            answer = await http.get(url)
            for _ in range(12):
                if answer.has_redirect_location:
                    url = str(answer.next_request.url)
                    if url.startswith(CALLBACK):
                        self._arrived = url
                        return
                    answer = await http.get(url)
                    continue
                prompt = "login" if 'name="login"' in answer.text else "consent"
                form = {"prompt": prompt, **({"login": self._name, "password": "x"} if prompt == "login" else {})}
                answer = await http.post(url, data=form)
        raise AssertionError(f"no way back to the client: {answer.text[:500]}")

    async def arrive(self):
        found = parse_qs(urlsplit(self._arrived).query)
        return AuthorizationCodeResult(code=found["code"][0], state=found["state"][0], iss=found.get("iss", [None])[0])


def logging_in(stack, name, memory):
    user = User(name)
    about = OAuthClientMetadata(
        redirect_uris=[CALLBACK],
        client_name="a test",
        grant_types=["authorization_code"],
        token_endpoint_auth_method="none",
    )
    return OAuthClientProvider(stack.mcp_url, about, memory, user.visit, user.arrive)


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_the_official_client_logs_in_and_calls_a_tool(npm, helpers, tmp_path, mode):
    with issuer(program_or_skip(PEERS)) as url:
        entry = {"issuer": url, "audience": AUDIENCE, "tenant": "default", "allow_http": True}
        mapped = {"roles_from": {"claim": "groups", "values": {"of ada": ["developer"]}}, "scopes": ["codesdk"]}
        entry |= {**mapped, "networks": ["127.0.0.0/8"], "session": {"labels": {"by": "login"}}}
        file = tmp_path / "logins.yaml"
        file.write_text(json.dumps({"version": 1, "issuers": [entry]}))
        with helpers.running(tmp_path, 10.0, logins_file=str(file)) as stack:
            stack.key()  # makes the tenant

            async def go(name):
                memory = Memory()
                async with (
                    httpx2.AsyncClient(auth=logging_in(stack, name, memory), timeout=30, trust_env=False) as http,
                    Client(streamable_http_client(stack.mcp_url, http_client=http), mode=mode) as client,
                ):
                    tools = {tool.name for tool in (await client.list_tools()).tools}
                    answer = await client.call_tool("workspace_read", {"path": "a.txt"})
                    return memory, tools, answer

            memory, tools, answer = helpers.within(go("ada"), 60)
            assert "workspace_read" in tools
            assert answer.structured_content["content"] == "hello\n"
            assert memory.tokens.access_token.count(".") == 2
            assert {s.labels["by"] for s in stack.services.sessions.list_all_open()} == {"login"}
            with pytest.raises(BaseException, match=r"(?s).*"):
                helpers.within(go("eve"), 60)
            assert len(stack.services.sessions.list_all_open()) == 1  # of ada alone
