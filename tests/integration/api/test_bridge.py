"""The stdio bridge as a program, with the official client on its stdin and stdout."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from contextlib import asynccontextmanager

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

PROGRAM = """
import sys
from codesdk.errors import Fault
from codesdk.mcphost.stdio_bridge import main as bridge
try:
    bridge.run(sys.argv[1], sys.argv[2])
except Fault as fault:
    print(fault, file=sys.stderr)
    sys.exit(fault.exit_code)
"""
ERAS = ["legacy", "auto"]


@asynccontextmanager
async def bridged(stack, token, mode):
    program = StdioServerParameters(command=sys.executable, args=["-c", PROGRAM, stack.mcp_url, token])
    async with Client(stdio_client(program), mode=mode) as client:
        yield client


def run(*arguments, stdin=""):
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


@pytest.mark.parametrize("mode", ERAS)
def test_tools_are_listed_and_called_through_the_bridge(stack, helpers, mode):
    session, token = stack.open_session()

    async def go():
        async with bridged(stack, token, mode) as client:
            listed = await client.list_tools()
            good = await client.call_tool("workspace_read", {"path": "a"})
            denied = await client.call_tool("workspace_read", {"path": "x.pem"})
            return listed, good, denied

    listed, good, denied = helpers.within(go())
    read = next(tool for tool in listed.tools if tool.name == "workspace_read")
    assert read.meta["codesdk/tool"] == "workspace.read"
    assert (good.content[0].text, good.structured_content["path"]) == ("hello\n", "a.txt")
    assert (denied.is_error, denied.meta["codesdk/call"]["rules"]) == (True, ["no-secrets"])
    assert stack.types(session).count("tool.call.completed") == 1


@pytest.mark.parametrize("mode", ERAS)
def test_progress_and_cancel_pass_through_the_bridge(stack, helpers, mode):
    session, token = stack.open_session()
    stack.worker.gate.clear()
    seen = asyncio.Event()

    async def on_progress(progress, total, message):
        seen.set()

    async def go():
        async with bridged(stack, token, mode) as client:
            arguments = {"path": "a"}
            running = asyncio.create_task(client.call_tool("workspace_read", arguments, progress_callback=on_progress))
            await seen.wait()
            running.cancel()
            await asyncio.to_thread(helpers.eventually, lambda: stack.worker.cancelled)

    helpers.within(go())
    helpers.eventually(lambda: stack.types(session)[-1] == "tool.call.completed")


@pytest.mark.parametrize(
    ("options", "env"), [(["--wait", "1"], {}), ([], {"CODESDK_CLIENT_WAIT_S": "1"})], ids=["an option", "a variable"]
)
def test_a_client_of_the_bridge_is_answered_within_the_time_that_it_is_given(stack, helpers, options, env):
    _, token = stack.open_session()
    stack.worker.gate.clear()
    line = ["-m", "codesdk.cli", "mcp", "--url", stack.mcp_url, *options]
    program = StdioServerParameters(command=sys.executable, args=line, env={"CODESDK_TOKEN": token, **env})

    async def go():
        async with Client(stdio_client(program)) as client:
            early = await client.call_tool("workspace_read", {"path": "a"})
            stack.worker.gate.set()
            collect = early.meta["codesdk/call"]["collect"]
            return early, await client.call_tool(collect["tool"], collect["arguments"])

    early, late = helpers.within(go())
    assert early.meta["codesdk/call"]["code"] == "CALL_RUNNING"
    assert late.content[0].text == "hello\n"


def test_a_protocol_error_passes_through_the_bridge(stack, helpers):
    _, token = stack.open_session()

    async def go():
        async with bridged(stack, token, "auto") as client:
            try:
                await client.call_tool("workspace_raed", {})
            except Exception as error:  # noqa: BLE001
                return error

    error = helpers.within(go())
    assert (error.code, "workspace_read" in error.message) == (-32602, True)


def test_a_host_that_goes_away_is_an_error_that_says_so(stack, helpers):
    session, token = stack.open_session()

    async def go():
        async with bridged(stack, token, "auto") as client:
            await client.list_tools()
            await asyncio.to_thread(stack.services.sessions.close, session.tenant_id, session.id)
            errors = []
            for step in (lambda: None, stack.stop):
                await asyncio.to_thread(step)
                try:
                    await client.call_tool("workspace_read", {"path": "a"})
                except Exception as error:  # noqa: BLE001
                    errors.append(error)
            return errors

    closed, gone = helpers.within(go())
    assert "not valid" in closed.message
    assert stack.mcp_url in gone.message


def test_where_nothing_listens_it_says_so_in_one_line():
    ended = run("http://127.0.0.1:9/mcp", "csdk_ses_x")
    assert (ended.returncode, ended.stdout) == (69, "")
    assert ended.stderr.count("\n") == 1
    assert "http://127.0.0.1:9/mcp" in ended.stderr


@pytest.mark.parametrize("address", ["not a url", "ftp://127.0.0.1/mcp", ""])
def test_an_address_that_is_none_is_one_line_too(address):
    ended = run(address, "csdk_ses_x")
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (69, "", 1)


def test_a_wrong_token_is_one_line(stack):
    ended = run(stack.mcp_url, "csdk_ses_wrong")
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (77, "", 1)
    assert "token" in ended.stderr


def test_something_that_is_no_mcp_host_is_one_line(stack):
    ended = run(f"{stack.url}/health", "csdk_ses_x")
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (69, "", 1)


def test_nothing_but_the_protocol_is_on_stdout_and_a_closed_stdin_ends_it(stack):
    _, token = stack.open_session()
    initialize = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
    }
    ended = run(stack.mcp_url, token, stdin="no json\n" + json.dumps(initialize) + "\n")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert all(json.loads(line)["jsonrpc"] == "2.0" for line in ended.stdout.splitlines())


@asynccontextmanager
async def telling(url, token):
    line = ["-m", "codesdk.cli", "mcp", "--tell-agent", "--url", url, "--token", token]
    async with Client(stdio_client(StdioServerParameters(command=sys.executable, args=line)), mode="legacy") as client:
        yield client


@pytest.mark.parametrize("stale", [False, True], ids=["dead host", "stale token"])
def test_an_agent_is_told_that_its_session_cannot_be_used(stack, helpers, stale):
    url = stack.mcp_url if stale else "http://127.0.0.1:9/mcp"
    said = "does not accept this session token" if stale else "No MCP host answers"

    async def go():
        async with telling(url, "csdk_ses_old") as client:
            return await client.list_tools(), await client.call_tool("workspace_read", {"path": "a"})

    listed, called = helpers.within(go())
    assert [tool.name for tool in listed.tools] == ["codesdk_unavailable"]
    assert said in listed.tools[0].description
    assert called.is_error
    assert said in called.content[0].text


def test_a_bridge_that_told_its_agent_ends_with_the_error():
    line = [
        sys.executable,
        "-m",
        "codesdk.cli",
        "mcp",
        "--tell-agent",
        "--url",
        "http://127.0.0.1:9/mcp",
        "--token",
        "x",
    ]
    asked = '{"jsonrpc":"2.0","id":7,"method":"ping"}\n'
    ended = subprocess.run(line, input=asked, capture_output=True, text=True, timeout=60, check=False)
    assert json.loads(ended.stdout) == {"jsonrpc": "2.0", "id": 7, "result": {}}
    assert ended.returncode == 69
    assert "No MCP host answers" in ended.stderr


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (r'{"path": "\ud83d"}', "params.arguments.path contains half a surrogate pair"),
        ('{"path": NaN}', "params.arguments.path is not a finite number"),
        ('{"path": "a", "x": ' + "[" * 5000 + "]" * 5000 + "}", "nested deeper"),
        ('{"path": "a"', "This request was not sent"),
    ],
    ids=["half an emoji", "NaN", "deep", "cut off"],
)
def test_a_line_that_cannot_be_forwarded_is_answered_and_the_next_one_served(stack, sent, said):
    _, token = stack.open_session()
    version = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    lines = [
        "\ufeff" + json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": version}),
        json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        f'{{"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {{"name": "workspace_read", "arguments": {sent}}}}}',
        json.dumps({"jsonrpc": "2.0", "id": 3, "method": "ping"}),
    ]
    ended = run(stack.mcp_url, token, stdin="\n".join(lines) + "\n")
    answers = {answer["id"]: answer for answer in map(json.loads, ended.stdout.splitlines()) if "id" in answer}
    assert said in answers[2]["error"]["message"]
    assert "result" in answers[1]
    assert "result" in answers[3]
