"""Real clients at the MCP host, each measured once: the results must match `docs/reference/mcp-clients.md`.

Only what the client itself causes is measured: the requests that the host received, and the answers that the client (or
the model behind an agent) got. The worker is a fake, so that a call runs as long as the test needs.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from contextlib import closing, contextmanager

import pytest
from mcp.shared.exceptions import MCPError

from acceptance.agents import claude, codex, gemini, kimi, opencode, qwen
from acceptance.agents.agent import Wiring
from acceptance.agents.install import INSTALL_LIMIT_S, AgentPackage
from acceptance.conftest import program_or_skip
from acceptance.model_server.script import Call, script
from acceptance.model_server.server import ModelServer
from client_stage import CANCELLED, MARK, STEPS, Scene, Watched
from stage import REPOSITORY

pytestmark = [pytest.mark.node, pytest.mark.timeout(INSTALL_LIMIT_S + 300)]

PAGE = REPOSITORY / "docs" / "reference" / "mcp-clients.md"
PEERS = AgentPackage(name="mcp-peers", binary="node_modules/node-linux-*/bin/node")
RUN_S = 240.0
CALL_LIMIT_S = 60.0
PATIENCE_S = (1.0, 2.0, 5.0, 10.0)
"""Seconds from a call's first event to the cut of its connection, and twice those from the last call to the interrupt. Nobody can
see when a client has read what came, nor whether its last word leaves it before it has ended, so further looks are more patient."""
RACES = ("connection dropped", "cancel")
"""The cells that this concerns."""
END_S = 60.0
"""Seconds that an agent gets to end at an interrupt, which stops its run as the page has it."""
ENDING_S = 2.0
"""The same, where nothing comes of it; then it is killed."""
SETTLE_S = 10.0
"""Seconds from an agent's end until a run that it has cancelled has stopped."""
SCRIPT = script(*(Call(*step) for step in STEPS))
AGENTS = {
    "Claude Code": (claude.ClaudeCode, claude.PACKAGE),
    "Codex": (codex.Codex, codex.PACKAGE),
    "Gemini CLI": (gemini.GeminiCli, gemini.PACKAGE),
    "Kimi Code": (kimi.KimiCode, kimi.PACKAGE),
    "OpenCode": (opencode.OpenCode, opencode.PACKAGE),
    "Qwen Code": (qwen.QwenCode, qwen.PACKAGE),
}
CLIENTS = ["Python SDK", "TypeScript SDK", *AGENTS]
STOPS, RUNS_ON = "stops the run", "it runs on"


@contextmanager
def staged(folder, helpers, patience_s):
    """A host, its watch, and an open session."""
    made = []

    def around(app):
        made.append(Watched(app, patience_s))
        return made[0]

    folder.mkdir()
    with helpers.running(folder, 60.0, around) as stack, closing(Scene(stack, made[0])) as scene:
        yield scene


def protocol(watched):
    for params in watched.of("tools/call"):
        if version := (params.get("_meta") or {}).get("io.modelcontextprotocol/protocolVersion"):
            return version
    return watched.of("initialize")[-1]["protocolVersion"]


def elicits(watched):
    declared = [params.get("capabilities", {}) for params in watched.of("initialize")]
    declared += [
        (params.get("_meta") or {}).get("io.modelcontextprotocol/clientCapabilities", {})
        for params in watched.of("tools/call")
    ]
    kinds = {kind for each in declared if "elicitation" in each for kind in (each["elicitation"] or {"form": {}})}
    return ", ".join(sorted(kinds)) or "no"


def yes(fact):
    return "yes" if fact else "no"


def common(scene, told):
    """The cells that every client has. `told`: what each of its calls but the last came to, as text."""
    read, denied, long, again, dropped, asked = told
    watched = scene.watched
    collected = "CALL_RUNNING" in long and wrote(again) and scene.runs["slow"] == 1
    return {
        "call": yes("hello" in read),
        "structured result": "yes" if "total_lines" in read else "text only",
        "denial": "reason and rule" if "no-secrets" in denied and "Keys are not read" in denied else "no",
        "asks for progress": yes(watched.asks_for_progress()),
        "names its calls": watched.names_calls(),
        "call longer than it waits": "answered early, then collected" if collected else "no",
        "connection dropped": taken_up(scene, dropped),
        "call that waits for a person": yes("exited" in asked or "it ran" in asked),
        "elicitation": elicits(watched),
        "protocol": protocol(watched),
    }


def taken_up(scene, dropped):
    """What comes of a call whose connection is cut."""
    if scene.watched.back.is_set() and wrote(dropped):
        return "resumed, runs once" if scene.runs["dropped"] == 1 else "resumed, runs again"
    return "cancelled" if scene.cancelled("dropped") else "lost"


def wrote(told):
    """Whether it was told the end of a write, by its text or by its fields."""
    return "written" in told or "sha256" in told


async def python_client(scene):
    async with scene.stack.client(scene.token, "auto") as mcp:
        names = [tool.name for tool in (await mcp.list_tools()).tools]
        heard = []

        async def progress(*said):
            heard.append(str(said))

        async def said(step):
            try:
                return (await mcp.call_tool(*step, progress_callback=progress)).model_dump_json()
            except MCPError as error:  # of the call whose connection is cut
                return str(error)

        told = [await said(step) for step in STEPS[:-1]]
        ending = asyncio.Event()

        async def enough(*_said):
            ending.set()

        last = asyncio.create_task(mcp.call_tool(*CANCELLED, progress_callback=enough))
        await ending.wait()
        last.cancel()
        await asyncio.wait([last])
        return names, told, "".join(heard)


def look_at_python(scene, helpers):
    names, told, heard = helpers.within(python_client(scene), RUN_S)
    return {**named(names), **common(scene, told), **driven(scene, helpers, heard)}


def look_at_typescript(scene, helpers):
    node = program_or_skip(PEERS)
    line = [node, REPOSITORY / "tests/fixtures/mcp_client.mjs", scene.stack.mcp_url, scene.token, json.dumps(STEPS)]
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
    return {**named(told["tools"]), **common(scene, told["calls"]), **driven(scene, helpers, told["progress"])}


def driven(scene, helpers, heard):
    """What a program sees that drives the client itself."""
    helpers.eventually(lambda: scene.cancelled("cancelled"), 60)
    return {"shows progress": yes(MARK in heard), "cancel": STOPS}


def look_at_agent(scene, helpers, name, folder, said):
    kind, package = AGENTS[name]
    program = program_or_skip(package)
    stack = scene.stack
    with (
        ModelServer(SCRIPT) as model,
        kind(program, folder, Wiring(model.url, stack.mcp_url, scene.token, CALL_LIMIT_S)) as agent,
    ):
        helpers.eventually(lambda: "cancelled" in scene.runs or not agent.running, RUN_S)
        assert agent.running, agent.finish()
        time.sleep(scene.watched.patience_s / 2)
        agent.interrupt()
        stops = said["cancel"] == STOPS
        run = agent.finish(END_S if stops else ENDING_S)
        settle(scene, SETTLE_S if stops else 0.0)
        turns = model.turns
    answers = [answer.text for answer in turns[-1].conversation.answers]
    assert len(answers) == len(STEPS) - 1, f"{name} made {len(answers)} calls: {answers} {run}"
    return {
        **named(tool.full_name for tool in turns[0].conversation.tools),
        **common(scene, answers),
        "shows progress": yes(MARK in agent.output),
        "cancel": STOPS if scene.cancelled("cancelled") else RUNS_ON,
    }


def settle(scene, most_s):
    """Wait for the end of a run that was cancelled, if it was."""
    due = time.monotonic() + most_s
    while not scene.cancelled("cancelled") and time.monotonic() < due:
        time.sleep(0.05)


def named(names):
    """How it calls our tools before its model."""
    found = [each for each in names if each.endswith("workspace_read")]
    return {"names of tools": f"`{found[0]}`" if len(found) == 1 else "none"}


def written(client):
    """The page's column."""
    rows = [line.split("|")[1:-1] for line in PAGE.read_text().splitlines() if line.startswith("|")]
    head = [cell.strip() for cell in rows[0]]
    column = head.index(client)
    return {row[0].strip(): row[column].strip() for row in rows[2:]}


def looked_at(client, scene, helpers, folder, said):
    if client == "Python SDK":
        return look_at_python(scene, helpers)
    if client == "TypeScript SDK":
        return look_at_typescript(scene, helpers)
    return look_at_agent(scene, helpers, client, folder, said)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_does_what_the_table_says(npm, helpers, tmp_path, client):
    said = written(client)
    found = {}
    for patience_s in PATIENCE_S:
        with staged(tmp_path / f"after-{patience_s}", helpers, patience_s) as scene:
            found = looked_at(client, scene, helpers, tmp_path / f"agent-{patience_s}", said)
        if all(found[cell] == said[cell] for cell in RACES):
            break
    differing = {
        cell: f"{value} (the page: {said.get(cell)})" for cell, value in found.items() if said.get(cell) != value
    }
    assert (differing, set(said) - set(found)) == ({}, set())
