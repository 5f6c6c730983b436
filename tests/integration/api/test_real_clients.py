"""Real clients at the MCP host, each looked at once: what it does must be what `docs/reference/mcp-clients.md` says.

The facts are those that the client itself causes: what the host was sent, and what the client (or the model behind an agent)
was told. A worker stands in, so that a call runs as long as the look needs it to.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import threading
from dataclasses import dataclass, field

import pytest

from acceptance.agents import claude, opencode, qwen
from acceptance.agents.install import INSTALL_LIMIT_S, AgentPackage
from acceptance.conftest import program_or_skip
from acceptance.model_server.script import Call, script
from acceptance.model_server.server import ModelServer
from codesdk.domain.tools import ToolResult
from stage import REPOSITORY

pytestmark = [pytest.mark.node, pytest.mark.timeout(INSTALL_LIMIT_S + 300)]

PAGE = REPOSITORY / "docs" / "reference" / "mcp-clients.md"
PEERS = AgentPackage(name="mcp-peers", binary="node_modules/node-linux-*/bin/node")
WAIT_S = 3.0
"""Seconds after which the host answers every call here, as a client's configuration would have it (`CodeSDK-Wait`)."""
RUN_S = 240.0
SLOW = {"path": "slow", "content": "x"}
SCRIPT = script(
    Call("workspace_read", {"path": "a.txt"}),
    Call("workspace_read", {"path": "x.pem"}),
    Call("workspace_write", SLOW),
    Call("workspace_write", SLOW),
)
AGENTS = {
    "Claude Code": (claude.ClaudeCode, claude.PACKAGE),
    "OpenCode": (opencode.OpenCode, opencode.PACKAGE),
    "Qwen Code": (qwen.QwenCode, qwen.PACKAGE),
}
CLIENTS = ["Python SDK", "TypeScript SDK", *AGENTS]


@dataclass
class Watched:
    """ASGI around the host: notes what clients send, and gives each call its time."""

    app: object
    sent: list[dict] = field(default_factory=list)
    on_call: object = None

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http" or scope["path"] != "/mcp" or scope["method"] != "POST":
            await self.app(scope, receive, send)
            return
        body = b""
        more = True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        self.note(json.loads(body))
        given = False

        async def again():
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        timed = [*scope["headers"], (b"codesdk-wait", str(WAIT_S).encode())]
        await self.app({**scope, "headers": timed}, again, send)

    def note(self, message):
        self.sent.append(message)
        if message.get("method") == "tools/call" and self.on_call is not None:
            self.on_call(message["params"])

    def of(self, method):
        return [message.get("params") or {} for message in self.sent if message.get("method") == method]

    def protocol(self):
        for params in self.of("tools/call"):
            if version := (params.get("_meta") or {}).get("io.modelcontextprotocol/protocolVersion"):
                return version
        return self.of("initialize")[-1]["protocolVersion"]

    def elicits(self):
        declared = [params.get("capabilities", {}) for params in self.of("initialize")]
        declared += [
            (params.get("_meta") or {}).get("io.modelcontextprotocol/clientCapabilities", {})
            for params in self.of("tools/call")
        ]
        kinds = {kind for each in declared if "elicitation" in each for kind in (each["elicitation"] or {"form": {}})}
        return ", ".join(sorted(kinds)) or "no"


@pytest.fixture
def world(tmp_path, helpers):
    """A host, its watch, and a token. A call of `slow` runs until it was asked for twice."""
    made = []

    def around(app):
        made.append(Watched(app))
        return made[0]

    with helpers.running(tmp_path, 60.0, around) as stack:
        watched = made[0]
        asked = []
        opening = threading.Timer(1.0, stack.worker.gate.set)

        def on_call(params):
            path = (params.get("arguments") or {}).get("path")
            asked.append(path)
            if path in ("slow", "cancelled") and asked.count(path) == 1:
                stack.worker.gate.clear()
            elif path == "slow" and asked.count(path) == 2:
                opening.start()

        watched.on_call = on_call
        written = {"path": "slow", "bytes": 1, "created": True, "sha256": "0" * 64}
        plain = stack.worker.answer

        def answer(claimed):
            writes = claimed.stored.call.name == "workspace.write"
            return ToolResult(text="written", structured=written) if writes else plain(claimed)

        stack.worker.answer = answer
        _, token = stack.open_session()
        yield stack, watched, token
        opening.cancel()


def common(watched, told):
    """The cells that every client has. `told`: what each of the four calls came to, as text."""
    read, denied, long, again = told
    calls = watched.of("tools/call")
    return {
        "call": "yes" if "hello" in read else "no",
        "structured result": "yes" if "total_lines" in read else "text only",
        "denial": "reason and rule" if "no-secrets" in denied and "Keys are not read" in denied else "no",
        "asks for progress": "yes" if any("progressToken" in (each.get("_meta") or {}) for each in calls) else "no",
        "call longer than it waits": "told, then collected"
        if "CALL_RUNNING" in long and any(word in again for word in ("written", "bytes", "RESULT_READY"))
        else "no",
        "elicitation": watched.elicits(),
        "protocol": watched.protocol(),
    }


async def python_client(stack, token):
    async with stack.client(token, "auto") as mcp:
        names = [tool.name for tool in (await mcp.list_tools()).tools]
        heard = []

        async def progress(*said):
            heard.append(said)

        calls = [
            ("workspace_read", {"path": "a.txt"}),
            ("workspace_read", {"path": "x.pem"}),
            ("workspace_write", SLOW),
            ("workspace_write", SLOW),
        ]
        told = [(await mcp.call_tool(*each, progress_callback=progress)).model_dump_json() for each in calls]
        ending = asyncio.Event()

        async def enough(*_said):
            ending.set()

        last = asyncio.create_task(
            mcp.call_tool("workspace_write", {"path": "cancelled", "content": "x"}, progress_callback=enough)
        )
        await ending.wait()
        last.cancel()
        await asyncio.wait([last])
        return names, told, len(heard)


def look_at_python(stack, watched, token, helpers):
    names, told, heard = helpers.within(python_client(stack, token), RUN_S)
    return {**named(names), **common(watched, told), **driven(stack, helpers, heard)}


def look_at_typescript(stack, watched, token, helpers):
    node = program_or_skip(PEERS)
    line = [node, REPOSITORY / "tests/fixtures/mcp_client.mjs", stack.mcp_url, token]
    ended = subprocess.run(
        line,
        cwd=node.parents[3],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=RUN_S,
        env={},
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    told = json.loads(ended.stdout)
    calls = [told[step] for step in ("read", "denied", "long", "again")]
    return {**named(told["tools"]), **common(watched, calls), **driven(stack, helpers, told["progress"])}


def driven(stack, helpers, heard):
    """What a program sees that drives the client itself."""
    helpers.eventually(lambda: stack.worker.cancelled, 60)
    return {"hears progress": "yes" if heard else "no", "cancel": "stops the run"}


def look_at_agent(stack, watched, token, name, folder):
    kind, package = AGENTS[name]
    program = program_or_skip(package)
    with (
        ModelServer(SCRIPT) as model,
        kind(program, folder, model_url=model.url, mcp_url=stack.mcp_url, token=token) as agent,
    ):
        run = agent.finish(RUN_S)
        turns = model.turns
    answers = [answer.text for answer in turns[-1].conversation.answers]
    assert len(answers) == 4, f"{name} made {len(answers)} calls: {answers} {run}"
    return {
        **named(turns[0].tools),
        **common(watched, answers),
        "hears progress": "not looked at",
        "cancel": "not looked at",
    }


def named(names):
    """How it calls our tools before its model."""
    found = sorted(each for each in names if each.endswith("workspace_read"))
    return {"names of tools": f"`{found[0]}`" if len(found) == 1 else "none"}


def written(client):
    """The page's column."""
    rows = [line.split("|")[1:-1] for line in PAGE.read_text().splitlines() if line.startswith("|")]
    head = [cell.strip() for cell in rows[0]]
    column = head.index(client)
    return {row[0].strip(): row[column].strip() for row in rows[2:]}


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_does_what_the_table_says(npm, world, helpers, tmp_path, client):
    stack, watched, token = world
    if client == "Python SDK":
        found = look_at_python(stack, watched, token, helpers)
    elif client == "TypeScript SDK":
        found = look_at_typescript(stack, watched, token, helpers)
    else:
        found = look_at_agent(stack, watched, token, client, tmp_path / "agent")
    said = written(client)
    differing = {
        cell: f"{value} (the page: {said.get(cell)})" for cell, value in found.items() if said.get(cell) != value
    }
    assert (differing, set(said) - set(found)) == ({}, set())
