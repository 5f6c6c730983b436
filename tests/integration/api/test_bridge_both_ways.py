"""A stdio client has the features of an HTTP client: questions, changes, and every answer before the bridge exits."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from contextlib import asynccontextmanager

import mcp_types as types
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from codesdk.api import app
from codesdk.approvals import Verdict
from codesdk.domain.tool_results import ToolResult
from codesdk.mcphost.listings import list_changed
from codesdk.mcphost.session_resources import uris
from stage import START_S

PROGRAM = """
import sys
from codesdk.mcphost.stdio_bridge import main as bridge, message_router
message_router.GRACE_S = float(sys.argv[3])
bridge.run(sys.argv[1], sys.argv[2])
"""
pytestmark = pytest.mark.filterwarnings("ignore:resources/subscribe is removed")
COMMAND = """
import sys
from codesdk.cli.session import stdio_bridge as bridge
from codesdk.domain.decisions import PermissionMode
mode = PermissionMode.AUTO
bridge.run(url=sys.argv[1], token=sys.argv[2], workspace=None, mode=mode, rules=None, data_dir=None, wait_s=None)
"""
"""What `codesdk mcp` does, signals included."""
ERAS = ["legacy", "auto"]
MAKE = {"command": "make"}
FILE = uris.file_uri("notes/a.txt")
LESS = """
version: 1
name: test
enable: [workspace.exec]
default: deny
rules:
  - {id: read, effect: allow, classification: read-only, reason: Reading is allowed.}
"""


@asynccontextmanager
async def bridged(stack, token, mode, **callbacks):
    program = StdioServerParameters(command=sys.executable, args=["-c", PROGRAM, stack.mcp_url, token, "5"])
    async with Client(stdio_client(program), mode=mode, **callbacks) as client:
        yield client


def piped(stack, token, requests, grace="20", before_the_end=lambda: None):
    """The messages on stdout, where these are all of stdin."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, stack.mcp_url, token, grace],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as bridge:
        try:
            bridge.stdin.writelines(f"{json.dumps({'jsonrpc': '2.0', **request})}\n" for request in requests)
            bridge.stdin.flush()
            before_the_end()
            said, wrong = bridge.communicate(timeout=START_S)
        finally:
            bridge.kill()
    assert (bridge.returncode, wrong) == (0, "")
    return [json.loads(line) for line in said.splitlines()]


def asks(mode, *requests, elicitation=None):
    """The stdin of a client that sends these requests, numbered from 0, and says what it must before."""
    capabilities = {} if elicitation is None else {"elicitation": elicitation}
    if mode == "legacy":
        who = {
            "protocolVersion": "2025-11-25",
            "capabilities": capabilities,
            "clientInfo": {"name": "t", "version": "1"},
        }
        greeted = [
            {"id": "hello", "method": "initialize", "params": who},
            {"method": "notifications/initialized"},
        ]
        return greeted + [{"id": n, "method": m, "params": p} for n, (m, p) in enumerate(requests)]
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    }
    return [{"id": n, "method": m, "params": {**p, "_meta": meta}} for n, (m, p) in enumerate(requests)]


def made(_claimed):
    return ToolResult(text="made", is_error=True)


async def written(client, heard):
    """What is heard of a file that is written until something is: a standing stream may open after the first time."""
    while True:
        await client.call_tool("workspace_write", {"path": "notes/a.txt", "content": "x"})
        with contextlib.suppress(TimeoutError):
            return await asyncio.wait_for(heard.get(), 2)


@pytest.fixture(scope="module")
def trusting(tmp_path_factory, helpers):
    """A stack whose operator trusts the agents' own hosts with a person's answer, and that has no pages."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(app, "ApprovalLinks", lambda *_, **__: lambda *_: None)
        with helpers.running(tmp_path_factory.mktemp("trusting"), 20.0, trust_clients=True) as built:
            patched.undo()
            built.worker.answer = made
            yield built


@pytest.mark.parametrize("mode", ERAS)
def test_what_came_before_the_end_of_stdin_is_answered_before_the_bridge_ends(standing, mode):
    _, token = standing.open_session()
    requests = [("tools/list", {}), ("tools/call", {"name": "workspace_read", "arguments": {"path": "a"}})]
    answers = {answer["id"]: answer["result"] for answer in piped(standing, token, asks(mode, *requests))}
    assert "workspace_read" in [tool["name"] for tool in answers[0]["tools"]]
    assert answers[1]["content"][0]["text"] == "hello\n"
    assert ("hello" in answers) == (mode == "legacy")


@pytest.mark.parametrize("mode", ERAS)
def test_a_call_that_outlasts_the_end_of_stdin_is_cancelled_and_says_so(standing, helpers, mode):
    session, token = standing.open_session()
    standing.worker.cancelled.clear()
    standing.worker.ran.clear()
    standing.worker.gate.clear()

    def runs():
        helpers.eventually(lambda: standing.worker.ran, START_S)

    try:
        call = ("tools/call", {"name": "workspace_read", "arguments": {"path": "a"}})
        *_, answer = piped(standing, token, asks(mode, call), grace="0.5", before_the_end=runs)
        assert (answer["id"], answer["error"]["code"]) == (0, types.CONNECTION_CLOSED)
        helpers.eventually(lambda: standing.types(session)[-1] == "tool.call.completed")
    finally:
        standing.worker.gate.set()
    assert standing.worker.cancelled


@pytest.mark.parametrize("mode", ERAS)
def test_a_call_under_way_at_a_signal_is_cancelled_though_stdin_stays_open(standing, helpers, mode):
    _, token = standing.open_session()
    standing.worker.cancelled.clear()
    standing.worker.ran.clear()
    standing.worker.gate.clear()
    try:
        with subprocess.Popen(
            [sys.executable, "-c", COMMAND, standing.mcp_url, token],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as bridge:
            try:
                call = asks(mode, ("tools/call", {"name": "workspace_read", "arguments": {"path": "a"}}))
                bridge.stdin.writelines(f"{json.dumps({'jsonrpc': '2.0', **each})}\n".encode() for each in call)
                bridge.stdin.flush()
                helpers.eventually(lambda: standing.worker.ran, START_S)
                bridge.terminate()
                assert (bridge.wait(20), bridge.stderr.read()) == (0, b"")
                helpers.eventually(lambda: standing.worker.cancelled)
            finally:
                bridge.kill()
    finally:
        standing.worker.gate.set()


@pytest.mark.parametrize("mode", ERAS)
def test_changes_of_lists_and_of_resources_pass_through_the_bridge(stack, helpers, monkeypatch, mode):
    monkeypatch.setattr(list_changed, "POLL_S", 0.1)
    stack.worker.answer = made
    _, token = stack.open_session()
    heard = asyncio.Queue()

    def change():
        (stack.settings.policies_dir / "policy.yaml").write_text(LESS)
        stack.services.bundles.refresh()

    async def on_message(message):
        if isinstance(message, types.ResourceUpdatedNotification | types.ToolListChangedNotification):
            heard.put_nowait(message)

    async def hears(client):
        updated = await written(client, heard)
        await asyncio.to_thread(change)
        while not isinstance(await heard.get(), types.ToolListChangedNotification):
            pass
        return str(updated.params.uri)

    async def go():
        async with bridged(stack, token, mode, message_handler=on_message) as client:
            if mode == "legacy":
                await client.subscribe_resource(FILE)
                return await hears(client)
            async with client.listen(tools_list_changed=True, resource_subscriptions=[FILE]):
                return await hears(client)

    assert helpers.within(go()) == FILE
    if mode == "auto":  # in the handshake era an MCP session stays for a while where its client was ended by force
        helpers.eventually(lambda: not stack.mcp.list_changes.followed and not stack.mcp.watching.followed)


class TestQuestions:
    @pytest.mark.parametrize("mode", ERAS)
    def test_a_yes_in_the_form_is_the_users_vote_as_it_is_over_http(self, trusting, helpers, mode):
        session, token = trusting.open_session()

        async def person(_context, params):
            assert params.mode == "form"
            return types.ElicitResult(action="accept", content={"decision": "approve", "comment": "go on"})

        async def go():
            async with bridged(trusting, token, mode, elicitation_callback=person) as client:
                return await client.call_tool("workspace_exec", MAKE)

        assert helpers.within(go()).content[0].text == "made"
        (approval,) = trusting.services.approvals.listing(session.tenant_id, None, session.id)
        assert (approval.decided_by, approval.comment) == (session.principal_id, "go on")

    @pytest.mark.parametrize("mode", ERAS)
    def test_where_hosts_are_not_trusted_the_link_is_shown_and_an_answer_decides_nothing(self, standing, helpers, mode):
        session, token = standing.open_session()
        asked = []

        async def person(_context, params):
            asked.append(params.mode)
            approval = standing.pending(session)
            asyncio.get_running_loop().call_later(0.5, reject, approval)
            return types.ElicitResult(action="accept", content={"decision": "approve"})

        def reject(approval):
            standing.services.pipeline.vote(
                session.tenant_id,
                approval.id,
                Verdict.REJECT,
                digest=approval.digest,
                by=session.principal_id,
                comment=None,
            )

        async def go():
            async with bridged(standing, token, mode, elicitation_callback=person) as client:
                return await client.call_tool("workspace_exec", MAKE)

        assert helpers.within(go()).meta["codesdk/call"]["code"] == "REJECTED_BY_APPROVER"
        assert asked == ["url"]

    @pytest.mark.parametrize(("mode", "declared"), [("legacy", None), ("auto", None), ("auto", {"form": {}})])
    def test_the_host_asks_those_clients_that_say_they_can_be_asked(self, trusting, mode, declared):
        session, token = trusting.open_session()
        call = asks(mode, ("tools/call", {"name": "workspace_exec", "arguments": MAKE}), elicitation=declared)
        grace = "1" if declared is None else "20"  # who cannot be asked has no answer before somebody decides
        said = piped(trusting, token, call, grace, before_the_end=lambda: trusting.pending(session, START_S))
        questions = [
            message
            for message in said
            if message.get("method") == "elicitation/create" or "inputRequests" in message.get("result", {})
        ]
        assert len(questions) == (declared is not None)


def test_a_client_of_the_handshake_era_goes_on_when_the_host_has_forgotten_its_mcp_session(stack, helpers):
    stack.worker.answer = made
    _, token = stack.open_session()
    heard = asyncio.Queue()

    async def on_message(message):
        if isinstance(message, types.ResourceUpdatedNotification):
            heard.put_nowait(message)

    async def go():
        async with bridged(stack, token, "legacy", message_handler=on_message) as client:
            await client.subscribe_resource(FILE)
            stack.mcp._manager._server_instances.clear()
            both = await asyncio.gather(client.list_tools(), client.list_tools())
            await written(client, heard)
            return both

    first, second = helpers.within(go())
    assert first.tools == second.tools != []
