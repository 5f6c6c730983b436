"""What policy can decide about a tool before there is a call, and by which rules."""

from __future__ import annotations

import pytest

from codesdk.domain.decisions import PermissionMode
from codesdk.policy import AccessLevel, tool_access

from .conftest import EXEC, READ, WRITE, subject

ASK, AUTO, YOLO = PermissionMode.ASK, PermissionMode.AUTO, PermissionMode.YOLO
RULES = """default: {default}
rules:
- {{id: look, effect: allow, tool: workspace.read}}
- {{id: careful, effect: ask, tool: workspace.write, {more}}}
- {{id: secrets, effect: deny, tool: workspace.read, args: {{/path: {{beneath: secrets}}}}}}
"""


@pytest.mark.parametrize(
    ("tool", "mode", "more", "said"),
    [
        (READ, AUTO, "", (AccessLevel.DEPENDS, ("secrets",))),
        (WRITE, AUTO, "", (AccessLevel.ASKED, ("careful",))),
        (WRITE, YOLO, "", (AccessLevel.DEPENDS, ())),
        (WRITE, YOLO, "floor: true", (AccessLevel.ASKED, ("careful",))),
        (WRITE, AUTO, "auto_ok: true", (AccessLevel.DEPENDS, ())),
        (WRITE, ASK, "auto_ok: true", (AccessLevel.ASKED, ("careful",))),
        (EXEC, AUTO, "", (AccessLevel.OFF, ("switched off in its manifest",))),
    ],
)
def test_the_word_and_the_rules_that_make_it_so(write_bundle, tool, mode, more, said):
    bundle = write_bundle(RULES.format(default="deny", more=more or "reason: Look."))
    assert tool_access(tool, subject(mode), bundle) == said


def test_the_default_and_the_mode_are_named_where_no_rule_speaks(write_bundle):
    asks = write_bundle("default: ask\nrules: [{id: a, effect: allow, tool: workspace.write}]\n")
    assert tool_access(READ, subject(AUTO), asks) == (AccessLevel.ASKED, ("default",))
    assert tool_access(WRITE, subject(AUTO), asks) == (AccessLevel.ON, ("a",))
    assert tool_access(WRITE, subject(ASK), asks) == (AccessLevel.ASKED, ("the mode ask",))
    denies = write_bundle("rules: [{id: a, effect: deny, tool: workspace.write}]\n")
    assert tool_access(READ, subject(AUTO), denies) == (AccessLevel.OFF, ("default",))
    assert tool_access(WRITE, subject(AUTO), denies) == (AccessLevel.OFF, ("a",))
