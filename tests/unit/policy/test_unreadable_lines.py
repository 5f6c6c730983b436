"""What is added to a line, or wrapped around it, never weakens what rules demand of its commands."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codesdk.domain.decisions import Decision, Effect
from codesdk.policy import Call, decide, load_bundle

from .conftest import EXEC, TOOLS, decide_line, subject

POLICY = """\
version: 1
enable: [workspace.exec]
rules:
- {id: removes, effect: deny, tool: workspace.exec, command: {any_of: [[rm, ...]]}}
- id: refunds
  effect: ask
  tool: workspace.exec
  command: {any_of: [[refund, ...]]}
  approval: {group: finance, quorum: 2, not_requester: true, timeout: 10m}
- id: tests
  effect: allow
  tool: workspace.exec
  command: {any_of: [[pytest, ...], [ls, ...]], trust_arguments: true}
  obligations: {timeout_s: 5, sandbox: {egress: none}}
default: ask
"""
LINES = ("rm -rf x", "refund 5", "pytest tests", "ls -l && rm y", "refund 7; ls", "cd a && pytest -q")
HIDDEN = ("\u202e", "\u200b", "\u2066", "\x1b", "\x07", "\x00", "\ufeff", "\u00a0", "\u3000", "\U000e0041", "\x7f")
ENDINGS = (
    *(f" '{mark}'" for mark in HIDDEN),
    *(f" # {mark}" for mark in HIDDEN),
    *HIDDEN,
    *("; ((", " '", ' "', " | (", "; }", " <<E", "; `", " $(", "; fi", " &&", "; case x in", "; [[ a"),
    *("; $X", '; eval "$Y"', '; sh -c "$Z"', "; true" * 250, "; echo " + "a" * 70_000, " # " + "(" * 20_000),
)
STARTS = (*(f"echo '{mark}'; " for mark in HIDDEN), "true; " * 250, "echo " + "b" * 70_000 + "; ", "echo $((1 + ); ")
WRAPPERS = ("sh -c {!r}", "timeout 5 sh -c {!r}", "( {} )", "{{ {}; }}", "if true; then {}; fi", "env A=1 bash -c {!r}")
STRICTNESS = (Effect.ALLOW, Effect.ASK, Effect.DENY)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    folder = tmp_path_factory.mktemp("unreadable")
    (folder / "policy.yaml").write_text(POLICY, encoding="utf-8")
    return load_bundle(folder, TOOLS)


def assert_not_weaker(before: Decision, after: Decision, line: str) -> None:
    shown = line if len(line) < 200 else f"{line[:90]} … {line[-90:]}"
    assert STRICTNESS.index(after.effect) >= STRICTNESS.index(before.effect), shown
    if after.effect is Effect.DENY:
        return
    assert after.obligations.timeout_s == before.obligations.timeout_s or before.obligations.timeout_s is None, shown
    assert after.obligations.sandbox == before.obligations.sandbox or not before.obligations.sandbox, shown
    if before.approval is not None and after.approval is not None:
        assert set(before.approval.demands) <= set(after.approval.demands), shown
        assert after.approval.not_requester >= before.approval.not_requester, shown
        assert after.approval.timeout_s <= before.approval.timeout_s, shown


@pytest.mark.parametrize("line", LINES)
def test_no_ending_start_or_wrapper_weakens_a_decision(bundle, line):
    before = decide_line(bundle, line)
    added = [line + ending for ending in ENDINGS] + [start + line for start in STARTS]
    for changed in added + [wrapper.format(line) for wrapper in WRAPPERS]:
        assert_not_weaker(before, decide_line(bundle, changed), changed)


@given(
    line=st.sampled_from(LINES),
    additions=st.tuples(
        st.sampled_from(("", *STARTS)),
        st.sampled_from(("{}", *WRAPPERS)),
        st.sampled_from(("", *ENDINGS)),
        st.text(st.sampled_from([*HIDDEN, "a", " ", "(", "'", "$", "<"]), max_size=6),
    ),
)
def test_neither_do_any_of_them_together(bundle, line, additions):
    start, wrapper, ending, noise = additions
    changed = start + wrapper.format(line) + ending + " # " + noise
    assert_not_weaker(decide_line(bundle, line), decide_line(bundle, changed), changed)


def test_a_command_with_a_hidden_character_in_its_name_is_judged_by_the_name_that_a_person_reads(bundle):
    assert decide_line(bundle, "r\u200bm -rf x").effect is Effect.DENY
    assert decide_line(bundle, "re\u00adfund 5").approval.demands[0].quorum == 2


def test_a_line_over_a_limit_is_denied_with_what_to_do_where_a_rule_may_deny_it(bundle):
    decision = decide_line(bundle, "echo " + "a" * 70_000)
    assert (decision.effect, decision.rules) == (Effect.DENY, ("removes",))
    assert "Run fewer and shorter commands in one call" in decision.reason


@pytest.mark.parametrize(
    "given",
    [
        {"command": "rm x", "argv": ["ls"]},
        {"command": "ls", "argv": ["rm", "x"]},
        {"command": ["rm", "x"]},
        {"argv": "rm x"},
        {"argv": ["rm", 5]},
        {"argv": ["rm", "\u202e"]},
        {"argv": ["r\u200bm", "x"]},
    ],
)
def test_fields_of_the_wrong_type_are_judged_by_what_they_may_run(bundle, given):
    assert decide(Call(name="workspace.exec", input=given), EXEC, subject(), bundle).effect is Effect.DENY
