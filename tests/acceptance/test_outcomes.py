"""The seven outcomes of a call, with a real agent: distinct in the log, in the transcript, and in the agent's answer.

The model is scripted, the agent is Claude Code, everything else is the running installation (`running.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from acceptance.agents.install import INSTALL_LIMIT_S
from acceptance.model_server.script import Call, script
from acceptance.running import wait_for_approval
from codesdk.domain.events import Event
from codesdk.transcript import fold, markdown_page

pytestmark = [
    pytest.mark.node,
    pytest.mark.engine,
    pytest.mark.redis,
    pytest.mark.timeout(INSTALL_LIMIT_S + 120),  # the first test may have to install the agent
]


@dataclass(frozen=True)
class Outcome:
    """One way that a call can go."""

    command: str
    """Of the acceptance bundle's rules, the one that this command meets decides."""
    life: tuple[str, ...]
    """Last words of the types of its events, those that somebody spoke or that ended it."""
    voices: tuple[tuple[str, str], ...]
    """Who said what, in order."""
    told: str
    """What the agent reads."""
    recorded: str
    """What the transcript says."""
    act: str = ""
    """What a person does while it waits: a method of `Running`."""


ASKED = ("requested", "policy_evaluated")
OUTCOMES = {
    "allowed": Outcome(
        "echo 1013 hPa", (*ASKED, "approved", "started", "completed"), (("codesdk", "allow"),), "1013 hPa", "1013 hPa"
    ),
    "denied": Outcome(
        "curl http://127.0.0.1/",
        (*ASKED, "denied"),
        (("codesdk", "deny"),),
        "[DENIED_BY_POLICY]",
        "Downloads are not allowed",
    ),
    "approved": Outcome(
        "touch mark && ls",
        (*ASKED, "policy_evaluated", "approved", "started", "completed"),
        (("codesdk", "ask"), ("user", "allow")),
        "mark",
        "text",
        act="approve",
    ),
    "rejected": Outcome(
        "touch mark",
        (*ASKED, "policy_evaluated", "denied"),
        (("codesdk", "ask"), ("user", "deny")),
        "[REJECTED_BY_APPROVER]",
        "A person rejected this call.",
        act="reject",
    ),
    "expired": Outcome(
        "mkdir mark",
        (*ASKED, "denied"),
        (("codesdk", "ask"),),
        "[APPROVAL_EXPIRED]",
        "Nobody approved this call in time.",
    ),
    "cancelled": Outcome(
        "touch mark", (*ASKED, "denied"), (("codesdk", "ask"),), "[CANCELLED]", "This call was cancelled", act="cancel"
    ),
}


@pytest.mark.parametrize("name", OUTCOMES)
def test_a_real_agent_is_told_what_became_of_its_call_as_the_log_has_it(stack, run_claude, name):
    outcome = OUTCOMES[name]
    session, token = stack.open_session(files={})

    agent = run_claude(script(Call("workspace_exec", {"command": outcome.command})), token)
    if outcome.act:
        getattr(stack, outcome.act)(wait_for_approval(stack, session, agent))
    run = agent.finish()

    assert run.sound, run
    (answer,) = run.outcomes
    events = stack.events(session)
    ours = [event for event in events if event["type"].startswith("tool.call.") and "delta" not in event["type"]]
    assert tuple(event["type"].removeprefix("tool.call.") for event in ours) == outcome.life
    assert tuple(spoken(event) for event in ours if event["type"].endswith("policy_evaluated")) == outcome.voices
    assert outcome.told in answer.text
    assert answer.is_error is (outcome.life[-1] == "denied")
    others = [other for other in OUTCOMES.values() if other is not outcome]
    assert not any(other.told in answer.text for other in others if other.told.startswith("["))
    told = markdown_page.render(fold(Event.model_validate(event) for event in events))
    assert outcome.recorded in told
    assert not any(other.recorded in told for other in others if other.told.startswith("["))


def test_the_second_call_of_a_real_agent_runs_by_the_grant_that_the_first_ones_yes_gave(stack, run_claude):
    session, token = stack.open_session(files={})
    command = Call("workspace_exec", {"command": "touch mark && ls"})

    agent = run_claude(script(command, command), token)
    stack.grant(wait_for_approval(stack, session, agent))
    run = agent.finish()

    assert run.sound, run
    assert [outcome.is_error for outcome in run.outcomes] == [False, False]
    assert all("mark" in outcome.text for outcome in run.outcomes)
    events = stack.events(session)
    first, second = [event["payload"] for event in events if event["type"] == "tool.call.approved"]
    assert first.get("approval_id")
    assert not first.get("grant_id")
    assert second.get("grant_id")
    assert not second.get("approval_id")
    voices = [event for event in events if event["type"].endswith("policy_evaluated")]
    assert [spoken(event) for event in voices] == [("codesdk", "ask"), ("user", "allow")] * 2
    assert voices[-1]["payload"]["grant_id"] == second["grant_id"]
    assert sum(event["type"] == "approval.requested" for event in events) == 1


def spoken(event: dict[str, Any]) -> tuple[str, str]:
    """Who spoke, and what they said."""
    said = event["payload"]
    return said["source"], said["result"]
