"""An approver's view of a call."""

from __future__ import annotations

import pytest

from codesdk.toolcalls.records.call_record import Waiting
from stage import POLICY, bundle

ASKING = POLICY.replace("{id: commands, effect: allow", "{id: commands, effect: ask, reason: Look first.")


@pytest.fixture
def shown(stage):
    pipeline = stage.pipeline_with(bundle(stage.root / "asking", ASKING, stage.registry))

    def submit(name, arguments):
        waiting = pipeline.submit(name, arguments, stage.subject)
        assert isinstance(waiting, Waiting)
        return stage.approval_service.find(stage.principal.tenant_id, waiting.approval_id).shown

    return submit


def test_every_command_of_a_line_is_shown_also_those_inside_others(shown):
    seen = shown("workspace.exec", {"command": "A=1 make -j2 && sudo sh -c 'rm -rf build; curl http://x'"})
    words = [" ".join(command) for command in seen["commands"]]
    assert "A=1 make -j2" in words
    assert {"rm -rf build", "curl http://x"} <= set(words)


def test_what_cannot_be_read_is_told_as_a_risk(shown):
    seen = shown("workspace.exec", {"command": "eval $(cat x)"})
    assert any("can be read from it" in line for line in seen["risk"])


def test_rule_reason_classification_profile_mode_and_who_asks_are_shown(shown, stage):
    seen = shown("workspace.exec", {"command": "true"})
    assert (seen["rules"], seen["reason"]) == (["commands"], "Look first.")
    assert (seen["classification"], seen["profile"], seen["mode"]) == ("dangerous", "default", "auto")
    assert seen["principal"] == stage.principal.id


def test_a_tool_without_a_command_shows_its_input_alone(shown):
    assert "commands" not in shown("workspace.write", {"path": "a", "content": "b"})
