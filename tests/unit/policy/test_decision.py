"""Decisions of a bundle: strictness, modes, errors, exceptions, defaults."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codesdk.domain.decisions import Classification, Effect, PermissionMode, SandboxBounds
from codesdk.policy import (
    Call,
    ExampleTool,
    Reachability,
    decide,
    explain,
    lint,
    load_bundle,
    may_ever_allow,
    unreadable_bundle,
)

from .conftest import EXEC, READ, TOOLS, WRITE, decide_line, subject

ALLOW, ASK, DENY = Effect.ALLOW, Effect.ASK, Effect.DENY


def write_call(path="a", **more):
    return Call(name="workspace.write", input={"path": path, "content": "", **more})


def test_the_strictest_of_all_matching_rules_wins_in_any_order(write_bundle):
    rules = ["{id: a, effect: allow}", "{id: b, effect: ask}", "{id: c, effect: deny, args: {/path: {eq: x}}}"]
    for order in (rules, rules[::-1]):
        bundle = write_bundle("rules:\n" + "".join(f"- {rule}\n" for rule in order))
        assert decide(write_call(), WRITE, subject(), bundle).effect is ASK
        decision = decide(write_call("x"), WRITE, subject(), bundle)
        assert (decision.effect, decision.rules) == (DENY, ("c",))


def test_a_bundle_without_rules_denies_whatever_its_default(write_bundle):
    decision = decide(write_call(), WRITE, subject(PermissionMode.YOLO), write_bundle("default: allow\n"))
    assert decision.effect is DENY
    assert "no rules" in decision.reason


def test_an_unreadable_bundle_denies_with_its_reason():
    decision = decide(write_call(), WRITE, subject(), unreadable_bundle("The file policy.yaml cannot be read."))
    assert (decision.effect, decision.reason) == (DENY, "The file policy.yaml cannot be read.")


def test_a_missing_default_denies_and_a_written_one_speaks_only_where_no_rule_matches(write_bundle):
    rule = "rules: [{id: a, effect: allow, tool: workspace.read}]\n"
    assert decide(write_call(), WRITE, subject(), write_bundle(rule)).effect is DENY
    bundle = write_bundle("default: ask\n" + rule)
    assert decide(write_call(), WRITE, subject(), bundle).effect is ASK
    assert decide(Call(name="workspace.read", input={}), READ, subject(), bundle).effect is ALLOW


@pytest.mark.parametrize(("effect", "expected"), [("allow", DENY), ("ask", ASK), ("deny", DENY)])
def test_a_test_that_cannot_be_made_moves_to_the_stricter_side(effect, expected, write_bundle):
    bundle = write_bundle(f"rules: [{{id: a, effect: {effect}, args: {{/n: {{gt: 5}}}}}}]\n")
    decision = decide(write_call(n="many"), WRITE, subject(), bundle)
    assert decision.effect is expected
    assert decision.trace[0].error


@pytest.mark.parametrize(("effect", "expected"), [("allow", DENY), ("ask", ASK), ("deny", DENY)])
def test_an_exception_that_cannot_be_tested_moves_to_the_stricter_side(effect, expected, write_bundle):
    bundle = write_bundle(f"rules: [{{id: a, effect: {effect}, unless: {{args: {{/n: {{gt: 5}}}}}}}}]\n")
    assert decide(write_call(n="many"), WRITE, subject(), bundle).effect is expected


def test_mode_ask_asks_before_everything_that_is_not_read_only(write_bundle):
    bundle = write_bundle("rules: [{id: a, effect: allow}]\n")
    assert decide(write_call(), WRITE, subject(PermissionMode.ASK), bundle).effect is ASK
    assert decide(Call(name="workspace.read", input={}), READ, subject(PermissionMode.ASK), bundle).effect is ALLOW


def test_mode_auto_allows_an_ask_only_where_every_asking_rule_says_so(write_bundle):
    bundle = write_bundle(
        "rules:\n- {id: a, effect: ask, auto_ok: true}\n- {id: b, effect: ask, args: {/path: {eq: x}}}\n"
    )
    assert decide(write_call(), WRITE, subject(), bundle).effect is ALLOW
    assert decide(write_call("x"), WRITE, subject(), bundle).effect is ASK
    assert decide(write_call(), WRITE, subject(PermissionMode.ASK), bundle).effect is ASK


def test_mode_yolo_allows_asks_without_a_floor_and_never_a_deny(write_bundle):
    bundle = write_bundle(
        "default: ask\nrules:\n- {id: a, effect: ask, args: {/path: {eq: a}}}\n- {id: b, effect: ask, floor: true, args: {/path: {eq: b}}}\n- {id: c, effect: deny, args: {/path: {eq: c}}}\n"
    )
    effects = [decide(write_call(path), WRITE, subject(PermissionMode.YOLO), bundle).effect for path in "abcd"]
    assert effects == [ALLOW, ASK, DENY, ALLOW]


def test_obligations_and_approvals_combine_to_the_tightest(write_bundle):
    bundle = write_bundle(
        "rules:\n- {id: a, effect: allow, obligations: {timeout_s: 9}}\n- {id: b, effect: ask, approval: {timeout: 10m}, obligations: {timeout_s: 30}}\n- {id: c, effect: ask, approval: {timeout: 90}}\n"
    )
    decision = decide(write_call(), WRITE, subject(), bundle)
    assert decision.approval is not None
    assert (decision.approval.timeout_s, decision.obligations.timeout_s) == (90, 9)


def test_bounds_on_the_sandbox_combine_to_the_tightest(write_bundle):
    bundle = write_bundle(
        "rules:\n"
        "- {id: a, effect: allow, obligations: {sandbox: {memory_bytes: 256MiB, pids: 90, egress: [a.example, '*.b.example']}}}\n"
        "- {id: b, effect: ask, obligations: {timeout_s: 3, sandbox: {memory_bytes: 64 MiB, egress: x.b.example}}}\n"
    )
    found = decide(write_call(), WRITE, subject(), bundle).obligations
    assert found.timeout_s == 3
    assert found.sandbox == SandboxBounds(memory_bytes=64 << 20, pids=90, egress=("x.b.example",))


@pytest.mark.parametrize("no_host", ["none", "[]"])
def test_hosts_of_two_rules_that_have_none_in_common_are_none(write_bundle, no_host):
    bundle = write_bundle(
        "rules:\n"
        "- {id: a, effect: allow, obligations: {sandbox: {egress: a.example}}}\n"
        f"- {{id: b, effect: allow, obligations: {{sandbox: {{egress: {no_host}}}}}}}\n"
    )
    assert decide(write_call(), WRITE, subject(), bundle).obligations.sandbox.egress == ()


@pytest.mark.parametrize(
    ("matcher", "kwargs", "matches"),
    [
        ("principal: prn_*", {}, True),
        ("principal: bob", {}, False),
        ("roles: [operator, developer]", {"roles": ("developer",)}, True),
        ("roles: [operator]", {"roles": ("developer",)}, False),
        ("labels: {branch: scratch/*}", {"labels": {"branch": "scratch/x"}}, True),
        ("labels: {branch: scratch/*}", {}, False),
        ("runtime: claude*", {"runtime": "claude-code"}, True),
        ("mode: yolo", {}, False),
        ("classification: [write, network]", {}, True),
        ("classification: read-only", {}, False),
        ("tool: workspace.*", {}, True),
        ("tool: [patch.*]", {}, False),
    ],
)
def test_matchers_look_at_tool_and_subject(matcher, kwargs, matches, write_bundle):
    bundle = write_bundle(f"rules:\n- id: a\n  effect: allow\n  {matcher}\n")
    assert (decide(write_call(), WRITE, subject(**kwargs), bundle).effect is ALLOW) is matches


@pytest.mark.parametrize(
    ("test", "value", "matches"),
    [
        ("{eq: 1}", 1, True), ("{eq: 1}", True, False), ("{eq: null}", None, True), ("{in: [a, b]}", "b", True), ("{in: [a]}", "b", False),
        ("{gt: 1, le: 3}", 3, True), ("{gt: 1}", 1, False), ("{glob: '*.py'}", "a/b.py", True), ("{glob: ['*.py', '*.md']}", "a.txt", False),
        ("{beneath: src}", "src/a", True), ("{beneath: src}", "src", True), ("{beneath: src}", "srcx/a", False), ("{beneath: src}", "src/../a", False),
        ("{beneath: .}", "../x", False), ("{beneath: .}", "/workspace/x", True), ("{beneath: .}", "/workspace-evil/x", False), ("{beneath: .}", "/etc", False),
        ("{beneath: .}", "a/../../workspace/b", True), ("{exists: true}", 1, True), ("{exists: false}", 1, False),
    ],
)  # fmt: skip
def test_arguments_are_tested_by_type(test, value, matches, write_bundle):
    bundle = write_bundle(f"rules: [{{id: a, effect: allow, args: {{/v: {test}}}}}]\n")
    assert (decide(write_call(v=value), WRITE, subject(), bundle).effect is ALLOW) is matches


def test_a_missing_argument_fits_only_its_absence(write_bundle):
    bundle = write_bundle("rules: [{id: a, effect: allow, args: {/x/y: {exists: false}}}]\n")
    assert decide(write_call(), WRITE, subject(), bundle).effect is ALLOW
    assert decide(write_call(x={"y": 1}), WRITE, subject(), bundle).effect is DENY


def test_a_disabled_tool_runs_only_under_a_bundle_that_enables_it(write_bundle):
    rule = "rules: [{id: a, effect: allow}]\n"
    decision = decide_line(write_bundle(rule), "ls")
    assert (decision.effect, decision.rules) == (DENY, ())
    assert "disabled" in decision.reason
    assert may_ever_allow(EXEC, subject(), write_bundle(rule)) is Reachability.NEVER
    assert decide_line(write_bundle("enable: [workspace.exec]\n" + rule), "ls").effect is ALLOW


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ("[{id: a, effect: allow}]", Reachability.ALWAYS),
        ("[{id: a, effect: deny}, {id: b, effect: allow}]", Reachability.NEVER),
        ("[{id: a, effect: allow, args: {/path: {eq: x}}}]", Reachability.DEPENDS),
        ("[{id: a, effect: ask}]", Reachability.DEPENDS),
        ("[{id: a, effect: allow, tool: workspace.read}]", Reachability.NEVER),
        ("[{id: a, effect: allow, roles: [operator]}]", Reachability.NEVER),
        ("[{id: a, effect: deny, unless: {args: {/path: {eq: x}}}}, {id: b, effect: allow}]", Reachability.DEPENDS),
        ("[]", Reachability.NEVER),
    ],
)
def test_list_time_knows_never_depends_and_always(rules, expected, write_bundle):
    assert may_ever_allow(WRITE, subject(), write_bundle(f"rules: {rules}\n")) is expected


@given(
    st.lists(st.sampled_from(("allow", "ask", "deny")), max_size=4),
    st.sampled_from(PermissionMode),
    st.sampled_from((None, "allow", "ask", "deny")),
)
@settings(max_examples=60, deadline=None)
def test_what_list_time_calls_never_is_never_allowed_or_asked(tmp_path_factory, effects, mode, default):
    directory = tmp_path_factory.mktemp("bundle")
    data = {"version": 1, "rules": [{"id": f"r{number}", "effect": effect} for number, effect in enumerate(effects)]}
    (directory / "policy.yaml").write_text(json.dumps(data | ({"default": default} if default else {})))
    bundle = load_bundle(directory, TOOLS)
    effect = decide(write_call(), WRITE, subject(mode), bundle).effect
    possibility = may_ever_allow(WRITE, subject(mode), bundle)
    assert (effect is DENY) is (possibility is Reachability.NEVER)
    assert possibility is not Reachability.ALWAYS or effect is ALLOW


def test_explain_names_every_rule_and_decides_the_same(write_bundle):
    bundle = write_bundle(
        "rules:\n- {id: a, effect: allow}\n- {id: b, effect: deny, tool: workspace.read}\n- {id: c, effect: ask, roles: [auditor]}\n"
    )
    told = explain(write_call(), WRITE, subject(), bundle)
    assert [(step.rule, step.matched, step.why) for step in told.trace] == [
        ("a", True, ""),
        ("b", False, "another tool"),
        ("c", False, "another role"),
    ]
    assert told.effect is decide(write_call(), WRITE, subject(), bundle).effect


def test_the_hash_counts_what_rules_say_and_not_how_they_are_laid_out(write_bundle):
    first = write_bundle("rules:\n- {id: a, effect: allow}\n- {id: b, effect: ask}\n")
    second = write_bundle("# other\nrules:\n- effect: ask\n  id: b\n- effect: allow\n  id: a\n")
    third = write_bundle("rules:\n- {id: a, effect: allow}\n- {id: b, effect: deny}\n")
    assert first.hash == second.hash != third.hash
    assert first.hash.startswith("sha256:")


def test_lint_finds_useless_and_toothless_rules(write_bundle, tmp_path):
    write_bundle(
        "enable: [workspace.exec]\nrules:\n- {id: all, effect: allow}\n"
        "- {id: no, effect: deny, tool: patch.apply}\n- {id: shadowed, effect: ask, tool: patch.apply}\n"
        "- {id: toothless, effect: deny, tool: workspace.exec, command: {any_of: [[git, push]]}}\n"
    )
    messages = " ".join(finding.message for finding in lint(tmp_path, TOOLS))
    for part in (
        "`all` allows every tool",
        "`shadowed` never decides",
        "`toothless` stops a command only without",
    ):
        assert part in messages


def test_an_unknown_classification_of_tool_falls_to_the_default(write_bundle):
    tool = ExampleTool(name="http.fetch", classification=Classification.NETWORK)
    bundle = write_bundle("rules: [{id: a, effect: allow, classification: [read-only, write]}]\n")
    assert decide(Call(name="http.fetch", input={}), tool, subject(), bundle).effect is DENY


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("curl -s x", "No rule allows `curl -s x`; the bundle"),
        ("pytest && curl x", "No rule allows `curl x`; the bundle"),
        (
            "rg --pre=x y",
            "`rg --pre=x y`: the rule `search` does not cover `--pre=x`, which runs code",
        ),
        ("pytest -q; git push --force", "the rule `push` forbids one of its options"),
        ("A=1 pytest", "the rule `tests` does not allow setting the variable `A`"),
        ("cd a && rm -rf b", "Nothing is removed. Command: `rm -rf b`."),
        ("rm -rf b", "Nothing is removed."),
        ("ls; publish x", "Publishing is done by people. Command: `publish x`."),
        (
            "export PATH=x; ls",
            "No rule allows this line: it sets `PATH`, which the shell or programs take commands or code from",
        ),
        ("case x in x) ls;; esac", "it uses `case`"),
        ("f() { ls; }", "it has a function"),
    ],
)
def test_the_reason_names_the_command_the_argument_and_why(write_bundle, line, said):
    bundle = write_bundle(
        "enable: [workspace.exec]\ndefault: ask\nrules:\n"
        "- {id: tests, effect: allow, tool: workspace.exec, command: {any_of: [[pytest, ...]]}}\n"
        "- {id: search, effect: allow, tool: workspace.exec, command: {any_of: [[rg, ...]]}}\n"
        "- {id: push, effect: allow, tool: workspace.exec, command: {any_of: [[git, push, ...]], forbid_flags: [--force]}}\n"
        "- {id: no, effect: deny, tool: workspace.exec, command: {any_of: [[rm, ...]]}, reason: Nothing is removed.}\n"
        "- {id: p, effect: ask, tool: workspace.exec, command: {any_of: [[publish, ...]]}, reason: Publishing is done by people.}\n"
    )
    reason = decide_line(bundle, line).reason
    assert said in reason
    assert ("Command:" in reason) == ("Command:" in said)
