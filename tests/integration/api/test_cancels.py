"""Cancels end a call in every state, and the runner confirms that the process tree has ended."""

from __future__ import annotations

import asyncio
import time

import pytest

from codesdk.sandbox.port import SandboxMissing
from sandboxes import alive
from stage import wait_for
from whole_stage import DEADLINE_S, Agent, Installation

pytestmark = [pytest.mark.engine, pytest.mark.redis, pytest.mark.timeout(300)]
SOON_S = 30.0
"""On a machine that does much else; at rest it is under two (`cancel_ms` of the bench)."""
STUBBORN = "trap '' TERM HUP INT; sleep {0} & setsid sleep {0} & (sleep {0} &); echo ready; sleep {0}"
"""A program that ignores what asks it to end, with a child, one in a session of its own and one that nobody waits for."""


class Scene:
    """Of one agent: a command that runs and will not end, one that is queued behind it, and one that waits for a person."""

    def __init__(self, agent: Agent, marker: str) -> None:
        self.agent = agent
        self.marker = marker
        self.commands = (STUBBORN.format(marker), "queued", "risky")

    def calls(self, kind: str = "tool.call.requested") -> list[str]:
        """The ids of the calls of which the log has such an event."""
        return [event.payload["tool_call_id"] for event in self.agent.events() if event.type == kind]

    def stands(self) -> bool:
        said = any(event.payload.get("delta", "").startswith("ready") for event in self.agent.events())
        return said and len(self.calls()) == 3 and len(self.calls("approval.requested")) == 1

    def over(self) -> bool:
        return len(self.calls("tool.call.completed")) + len(self.calls("tool.call.denied")) == 3

    def ends(self) -> dict[str, str]:
        """How each ended, by what it was."""
        ended = {
            event.payload["tool_call_id"]: event.payload.get("code") or event.payload.get("error", {}).get("code")
            for event in self.agent.events()
            if event.type in ("tool.call.completed", "tool.call.denied")
        }
        return dict(zip(("running", "queued", "waiting"), (ended[call] for call in self.calls()), strict=True))


def by_http(scene: Scene) -> None:
    with scene.agent.installation.http(scene.agent.key) as http:
        for call in scene.calls():
            path = f"/v1/sessions/{scene.agent.session}/calls/{call}/cancel"
            assert http.post(path).json()["cancelled"] is True


def by_closing(scene: Scene) -> None:
    with scene.agent.installation.http(scene.agent.key) as http:
        assert http.delete(f"/v1/sessions/{scene.agent.session}").json()["state"] == "closed"


MEANS = {"the API": by_http, "the session's end": by_closing, "a notification": None, "a dropped stream": None}
"""The last two are the client's own, in the older protocol and in the newer."""


@pytest.mark.parametrize("means", MEANS)
def test_whoever_ends_calls_ends_them_in_every_state(installation, means):
    agent = installation.open_session()
    scene = Scene(agent, str(613_000 + list(MEANS).index(means)))
    mode = "legacy" if means == "a notification" else "auto"

    async def go() -> float:
        async with agent.client(mode) as client:
            asked = []
            for command in scene.commands:
                asked.append(asyncio.create_task(client.call_tool("workspace_exec", {"command": command})))
                await until(lambda: len(scene.calls()) == len(asked))
            await until(scene.stands)
            began = time.monotonic()
            if (end := MEANS[means]) is not None:
                await asyncio.to_thread(end, scene)
            else:
                for task in asked:
                    task.cancel()
            await until(scene.over)
            took = time.monotonic() - began
            await asyncio.wait(asked)
            return took

    assert asyncio.run(go()) < SOON_S
    code = "SESSION_CLOSED" if means == "the session's end" else "CANCELLED"
    assert scene.ends() == {"running": "CANCELLED", "queued": code, "waiting": code}
    agent.is_lawful()
    live = installation.worker.sandbox_registry.live(agent.session)
    if means == "the session's end":
        wait_for(lambda: is_gone(installation, agent), "its sandbox to go", DEADLINE_S)
    else:
        assert live is not None
        assert not alive(live, scene.marker)


async def until(fact) -> None:
    await asyncio.to_thread(wait_for, fact, "the scene", DEADLINE_S)


def is_gone(installation: Installation, agent: Agent) -> bool:
    found = installation.sandboxes.reattach(installation.owner_of(agent.session), installation.worker.host.generation)
    return isinstance(found, SandboxMissing)
