"""Claude Code against the whole product: its model is scripted, everything else is real.

`stack` is the running installation (`running.py`), with the bundle in `policies/`.
"""

from __future__ import annotations

import re
import socket

import pytest

from acceptance.agents.install import INSTALL_LIMIT_S
from acceptance.model_server.script import Call, Say, script
from acceptance.running import wait_for_approval

pytestmark = [
    pytest.mark.node,
    pytest.mark.engine,
    pytest.mark.redis,
    pytest.mark.timeout(INSTALL_LIMIT_S + 120),  # the first test may have to install the agent
]

README = "# Barometer\nIt reads 1013 hPa at sea level, said nobody before this test.\n"


def of_calls(events):
    """The events of tool calls and what they say, without output pieces."""
    return [(event["type"], event["payload"]) for event in events if event["type"].startswith("tool.call.")]


def calls_by_id(events):
    """Types of each call's events, in order, by call id."""
    lives: dict[str, list[str]] = {}
    for kind, payload in of_calls(events):
        lives.setdefault(payload["tool_call_id"], []).append(kind)
    return lives


FULL_LIFE = [
    "tool.call.requested",
    "tool.call.policy_evaluated",
    "tool.call.approved",
    "tool.call.started",
    "tool.call.completed",
]


def test_a_call_of_a_real_agent_is_decided_run_in_the_container_recorded_and_quoted(stack, run_claude):
    session, token = stack.open_session(files={"README.md": README})

    run = run_claude(script([Say("I look first."), Call("workspace_read", {"path": "README.md"})]), token).finish()

    assert run.sound, run
    assert run.servers == {"codesdk": "connected"}
    assert [(outcome.tool, outcome.is_error) for outcome in run.outcomes] == [("mcp__codesdk__workspace_read", False)]
    assert "1013 hPa at sea level" in run.final_text
    kinds, payloads = zip(*of_calls(stack.events(session)), strict=True)
    assert list(dict.fromkeys(kinds)) == FULL_LIFE
    assert payloads[0]["name"] == "workspace.read"
    assert payloads[-1]["execution_env"] == "codesdk_docker"
    assert payloads[-1]["executed_by"] == "codesdk"
    assert not payloads[-1].get("is_error")


def test_a_command_of_a_real_agent_runs_unprivileged_in_the_sandbox_and_not_on_the_host(stack, run_claude):
    session, token = stack.open_session(files={})
    command = "echo uid=$(id -u) host=$(hostname); echo kept > made-by-agent.txt"

    agent = run_claude(
        script(
            Call("workspace_exec", {"command": command}),
            Call("workspace_read", {"path": "made-by-agent.txt"}),
        ),
        token,
    )
    run = agent.finish()

    assert run.sound, run
    ran, read = run.outcomes
    # Found anywhere: an agent shows the model a tool's structured output as JSON text where there is one.
    uid, host = re.search(r"uid=(\d+) host=([\w.-]+)", ran.text).groups()
    assert int(uid) >= 10_000
    assert host != socket.gethostname()
    assert "kept" in read.text
    assert list(agent.work.iterdir()) == []
    assert [life[-1] for life in calls_by_id(stack.events(session)).values()] == ["tool.call.completed"] * 2


def test_a_real_agent_restricted_to_our_host_has_no_built_in_tools(stack, run_claude):
    session, token = stack.open_session(files={})

    agent = run_claude(script(Call("Bash", {"command": "touch marker", "description": "Leave a mark"})), token)
    run = agent.finish()

    assert run.sound, run
    assert run.tools
    assert all(tool.startswith("mcp__codesdk__") for tool in run.tools)
    (outcome,) = run.outcomes
    assert outcome.is_error
    assert not (agent.work / "marker").exists()
    assert of_calls(stack.events(session)) == []


def test_a_call_that_a_person_approves_over_http_gives_the_waiting_agent_its_result(stack, run_claude):
    session, token = stack.open_session(files={})

    agent = run_claude(script(Call("workspace_exec", {"command": "touch release-mark && ls"})), token)
    approval = wait_for_approval(stack, session, agent)
    assert not any(kind == "tool.call.started" for kind, _ in of_calls(stack.events(session)))
    stack.approve(approval)
    run = agent.finish()

    assert run.sound, run
    (outcome,) = run.outcomes
    assert not outcome.is_error, outcome
    assert "release-mark" in run.final_text
    (life,) = calls_by_id(stack.events(session)).values()
    assert life[-3:] == ["tool.call.approved", "tool.call.started", "tool.call.completed"]


def test_parallel_calls_of_a_real_agent_get_their_own_results(stack, run_claude):
    files = {f"notes/{name}.txt": f"This is the note called {name}.\n" for name in ("ash", "birch", "cedar")}
    session, token = stack.open_session(files=files)

    run = run_claude(script([Call("workspace_read", {"path": path}) for path in files]), token).finish()

    assert run.sound, run
    texts = {outcome.call_id: outcome.text for outcome in run.outcomes}
    assert sorted(texts) == ["scripted_1_1", "scripted_1_2", "scripted_1_3"]
    for call_id, content in zip(sorted(texts), files.values(), strict=True):
        assert content.strip() in texts[call_id]
    assert list(calls_by_id(stack.events(session)).values()) == [FULL_LIFE] * 3
