"""Approvals that take longer than an agent waits: three real agents, each with its own way of giving up, and one run.

The behavior was measured of each pinned version: Qwen Code drops its session and sends the call again up to three
times; OpenCode waits while it gets progress, and cancels each call once more after its answer; Claude Code, driven by a
program, asks that program and waits for its answer.
"""

from __future__ import annotations

import time

import pytest

from acceptance.agents.install import INSTALL_LIMIT_S
from acceptance.model_server.script import Call, script
from acceptance.running import wait_for_approval

pytestmark = [
    pytest.mark.node,
    pytest.mark.engine,
    pytest.mark.redis,
    pytest.mark.timeout(INSTALL_LIMIT_S + 180),  # the first test of each agent may have to install it
]

ASKED = Call("workspace_exec", {"command": "touch mark && ls && echo ran >> runs && cat runs"})
CALL_LIMIT_S = 6.0
"""How long the agents wait. Qwen Code comes back three times, so somebody has four times that to answer."""


def lives(stack, session):
    """What became of each call, by id, without what it printed."""
    found: dict[str, list[str]] = {}
    for event in stack.events(session):
        kind = event["type"].removeprefix("tool.call.")
        if kind != event["type"]:
            found.setdefault(event["payload"]["tool_call_id"], []).append(kind)
    return list(found.values())


def outlast_and_approve(stack, session, agent):
    """Say yes when the agent's own limit is over for sure.

    Where it was away for so long that its question was withdrawn, the one that it asks when it is back is answered.
    """
    wait_for_approval(stack, session, agent)
    time.sleep(CALL_LIMIT_S + 1)  # the agent's clock is its own
    while agent.running:
        for approval in stack.pending(session):
            stack.approve(approval)
        time.sleep(0.1)


def ran_once(stack, session):
    """Whether one call ran, and any other was withdrawn unrun."""
    ends = sorted(life[-1] for life in lives(stack, session))
    started = sum("started" in life for life in lives(stack, session))
    return started == 1 and ends[0] == "completed" and set(ends[1:]) <= {"denied"}


def test_qwen_code_that_sends_a_timed_out_call_again_gets_the_result_of_the_one_run(stack, run_qwen):
    session, token = stack.open_session(files={})

    agent = run_qwen(script(ASKED), token, call_limit_s=CALL_LIMIT_S)
    outlast_and_approve(stack, session, agent)
    run = agent.finish()

    assert run.sound, run
    (outcome,) = run.outcomes
    assert not outcome.is_error, outcome
    assert "mark" in outcome.text
    assert outcome.text.count("ran") == 1
    assert ran_once(stack, session), lives(stack, session)


def test_opencode_waits_past_its_limit_and_what_it_cancels_afterwards_changes_nothing(stack, run_opencode):
    session, token = stack.open_session(files={})

    agent = run_opencode(script(ASKED, Call("workspace_read", {"path": "runs"})), token, call_limit_s=CALL_LIMIT_S)
    outlast_and_approve(stack, session, agent)
    run = agent.finish()

    assert run.sound, run
    asked, read = run.outcomes
    assert "mark" in asked.text
    assert read.text.count("ran") == 1
    assert [life[-1] for life in lives(stack, session)] == ["completed", "completed"]


def test_claude_code_whose_program_never_answers_its_question_gets_the_result_when_a_person_says_yes(stack, run_claude):
    session, token = stack.open_session(files={})

    agent = run_claude(script(ASKED), token, dialogue=True)
    approval = wait_for_approval(stack, session, agent)
    agent.printed(b'"subtype":"elicitation"')
    stack.approve(approval)
    run = agent.finish()

    assert run.sound, run
    (outcome,) = run.outcomes
    assert not outcome.is_error, outcome
    assert "mark" in outcome.text
    assert ran_once(stack, session), lives(stack, session)
