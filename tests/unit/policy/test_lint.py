"""Lint finds rules that can never match and rules that another one makes useless, with their lines, and no others."""

from __future__ import annotations

import time
from datetime import date
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from codesdk.policy import Call, ExampleTool, lint, load_bundle
from codesdk.policy.linting.containment import contains
from codesdk.policy.matching.argument_conditions import glob_matcher
from codesdk.policy.matching.compiled_rules import MatchOutcome, PolicyInput, compile_rule
from codesdk.policy.schema.models import Matcher, Rule
from codesdk.registry import Registry
from codesdk.tenancy.principal import Role

from .conftest import EXEC, REPOSITORY, WRITE, subject

REGISTRY = {tool.name: tool for tool in Registry.load(REPOSITORY / "tool-registry").tools()}
TODAY = date(2026, 11, 28)


@pytest.fixture
def found(tmp_path):
    """Lints rules, one a line from line 3 on; gives line and message."""

    def run(*rules):
        text = "version: 1\nrules:\n" + "".join(f"- {rule}\n" for rule in rules)
        (tmp_path / "policy.yaml").write_text(text)
        findings = lint(tmp_path, list(REGISTRY), tool_schemas=REGISTRY, day=TODAY)
        run.fatal = {finding.fatal for finding in findings}
        assert {finding.file for finding in findings} <= {str(tmp_path / "policy.yaml")}
        return [(finding.line, finding.message) for finding in findings]

    run.fatal = set()
    return run


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("tool: workspace.raed", "names the unknown tool `workspace.raed`. Did you mean `workspace.read`?"),
        ("tool: ['workspace.*', 'wrokspace.*']", "names the unknown tool `wrokspace.*`. Did you mean `workspace.*`?"),
        ("server: worksapce", "names the unknown server `worksapce`. Did you mean `workspace`?"),
        ("tool: workspace.read, server: patch", "never matches: `workspace.read` does not come from patch"),
        ("tool: workspace.read, classification: write", "never matches: `workspace.read` is read-only, and the rule is about write"),
        ("tool: workspace.read, args: {/pth: {eq: a}}", "never matches: `workspace.read` has no argument `/pth`. Did you mean `/path`?"),
        ("tool: workspace.read, args: {/path/x: {eq: a}}", "has no argument `/path/x`"),
        ("tool: workspace.read, args: {/limit: {glob: '1*'}}", "never matches: `/limit` is a number there, never a string"),
        ("tool: workspace.read, args: {/path: {gt: 1}}", "never matches: `/path` is a string there, never a number"),
        ("tool: workspace.read, args: {/path: {in: [1, true]}}", "never matches: `/path` is a string there"),
        ("tool: workspace.read, command: {any_of: [[ls]]}", "never matches: `workspace.read` has no command"),
        ("tool: workspace.read, args: {/limit: {gt: 5, lt: 5}}", "`/limit` has bounds that leave no number"),
        ("tool: workspace.read, args: {/limit: {ge: 6, le: 5}}", "`/limit` has bounds that leave no number"),
        ("tool: workspace.read, args: {/limit: {eq: 3, gt: 5}}", "`/limit` cannot meet all of its tests"),
        ("tool: workspace.read, args: {/path: {in: [a, b], glob: 'c*'}}", "`/path` cannot meet all of its tests"),
        ("tool: workspace.read, args: {/path: {in: []}}", "`/path` cannot meet all of its tests"),
        ("tool: workspace.read, args: {/path: {beneath: [/etc, ../x]}}", "`/path` must be beneath folders outside"),
        ("tool: workspace.read, args: {/path: {exists: false, eq: a}}", "so its other tests have no effect"),
        ("tool: workspace.exec, command: {any_of: [['git push', ...]]}", "no command is named `git push`; write [git, push]"),
        ("tool: workspace.exec, command: {any_of: [[rm, ...]], any_flag: [-f], forbid_flags: [-f, -r]}", "those that it forbids"),
        ("tool: workspace.read, unless: {tool: workspace.raed}", "names the unknown tool `workspace.raed`"),
        ("tool: workspace.read, unless: {args: {/pth: {eq: a}}}", "has an `unless` that never holds: `workspace.read` has no argument `/pth`"),
        ("tool: workspace.read, when: 'args.pth == \"a\"'", "`workspace.read` has no argument `pth`. Did you mean `path`?"),
        ("tool: workspace.read, when: 'args[\"pth\"] == \"a\"'", "`workspace.read` has no argument `pth`"),
        ("tool: workspace.read, when: 'has(args.pth)'", "`workspace.read` has no argument `pth`"),
        ("tool: workspace.read, when: 'args.path > 3'", "found no matching overload for '_>_' applied to '(string, int)' (line 1, character 11 of it)"),
        ("tool: workspace.read, when: 'args.limit == \"3\"'", "applied to '(double, string)'"),
        ("tool: workspace.read, unless: {when: 'args.path > 3'}", "has a condition that can't be evaluated"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("effect", ["allow", "deny"])
def test_a_rule_that_can_never_match_is_an_error_at_its_line(found, effect, body, says):
    told = found("{id: other, effect: allow, tool: patch.apply}", f"{{id: it, effect: {effect}, {body}}}")
    assert ({line for line, _ in told}, found.fatal) == ({4}, {True})
    if effect == "allow" or ("a number there" not in told[0][1] and "a string there, never a number" not in told[0][1]):
        assert says in told[0][1]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("expires: 2026-11-27, tool: workspace.read", "expired on 2026-11-27"),
        ("tool: workspace.read, when: 'args.path == \"a\" && 1 > 2'", "`when` is false of every call"),
        ("tool: workspace.read, unless: {tool: 'workspace.*'}", "its `unless` holds wherever it would"),
        ("tool: workspace.exec, command: {any_of: [[git, 'push -f', ...]]}", "write [push, -f]"),
    ],
)
def test_a_rule_that_its_author_may_have_switched_off_is_a_warning(found, body, says):
    told = found("{id: other, effect: allow, tool: patch.apply}", f"{{id: it, effect: deny, {body}}}")
    assert ([line for line, _ in told], found.fatal) == ([4], {False})
    assert says in told[0][1]


@pytest.mark.parametrize(
    "body",
    [
        "tool: time.now, absent_ok: true",
        "tool: [workspace.read, 'time.*'], absent_ok: true",
        "server: time, absent_ok: true",
        "tool: workspace.read, unless: {tool: time.now}, absent_ok: true",
        "tool: time.now, args: {/zone: {eq: UTC}}, when: 'args.zone == \"UTC\"', absent_ok: true",
    ],
)
def test_a_rule_may_say_that_its_tools_can_be_absent(found, body):
    assert found(f"{{id: it, effect: ask, {body}}}") == []


@pytest.mark.parametrize(
    "condition",
    [
        'has(args.path) && args.path.startsWith("a")',
        '"limit" in args && args.limit > 1.5 && args.limit < 9',
        "args.limit in [1, 2]",
        "args.limit * 2 > 3",
        'args.path == null || "args.nothing" == args.path',
        'principal.roles.exists(args, args == "approver")',
        'args.exists(name, name == "path")',
        'args["path"].matches(r"[.]env$") && size(args.path) > 3',
    ],
)
def test_a_condition_that_can_hold_is_no_error(found, condition):
    found(f"{{id: it, effect: ask, tool: workspace.read, when: '{condition}'}}")
    assert found.fatal == set()


def test_a_condition_about_several_tools_may_use_an_argument_of_one(found):
    found("{id: it, effect: ask, tool: [workspace.read, workspace.write], when: 'has(args.content)'}")
    assert found.fatal == set()


def test_an_ask_whose_test_always_fails_is_said_to_match_every_call(found):
    told = found("{id: it, effect: ask, tool: workspace.read, args: {/path: {gt: 1}}}")
    assert "matches every call, because its test always fails" in told[0][1]


@pytest.mark.parametrize(
    "body",
    [
        "effect: allow, tool: workspace.read, args: {/limit: {ge: 5, le: 5}}",
        "effect: allow, tool: workspace.read, args: {/offset: {exists: false}}",
        "effect: allow, classification: network",
        "effect: deny, classification: dangerous, unless: {tool: workspace.exec}",
        "effect: deny, tool: workspace.write, args: {/path: {beneath: src}}, unless: {args: {/path: {beneath: src/open}}}",
        "effect: allow, tool: workspace.exec, command: {any_of: [[git, [log, show], ...]]}",
        "effect: allow, tool: workspace.exec, args: {/argv/0: {eq: ls}}",
        'effect: allow, tool: workspace.read, when: \'"path" in args && args.path != "a"\'',
        "effect: allow, tool: workspace.read, expires: 2026-11-28",
    ],
)
def test_a_rule_that_may_match_is_left_alone(found, body):
    assert found(f"{{id: it, {body}}}") == []


@pytest.mark.parametrize(
    ("one", "other", "shadowed"),
    [
        ("effect: deny, tool: patch.apply", "effect: ask, tool: patch.apply", "other"),
        ("effect: deny, classification: write", "effect: allow, tool: patch.apply", "other"),
        ("effect: deny, tool: 'workspace.*'", "effect: allow, tool: [workspace.read, workspace.list]", "other"),
        ("effect: ask, tool: workspace.write", "effect: allow, tool: workspace.write, args: {/path: {beneath: src}}", "other"),
        ("effect: allow, tool: workspace.read", "effect: allow, tool: workspace.read, roles: auditor", "other"),
        ("effect: allow, tool: workspace.read", "effect: allow, tool: workspace.read", "other"),
        ("effect: deny, tool: workspace.exec, command: {any_of: [[git, ...]]}", "effect: ask, tool: workspace.exec, command: {any_of: [[git, [push, pull], ...]]}", "other"),
        ("effect: deny, tool: workspace.write, args: {/path: {beneath: src}}", "effect: ask, tool: workspace.write, args: {/path: {beneath: [src/a, src]}}", "other"),
        ("effect: deny, tool: workspace.read, args: {/limit: {gt: 5}}", "effect: ask, tool: workspace.read, args: {/limit: {ge: 6}}", "other"),
        ("effect: deny, tool: workspace.read, unless: {roles: auditor}", "effect: ask, tool: workspace.read, unless: {roles: [auditor, approver]}", "other"),
        ("effect: allow, tool: workspace.read, roles: auditor", "effect: allow, tool: workspace.read", "one"),
        # None of these shadows the other.
        ("effect: allow, tool: workspace.read", "effect: ask, tool: workspace.read, roles: auditor", ""),
        ("effect: allow, tool: workspace.read", "effect: allow, tool: workspace.read, roles: auditor, obligations: {timeout_s: 5}", ""),
        ("effect: ask, tool: workspace.write", "effect: ask, tool: workspace.write, roles: auditor, floor: true", ""),
        ("effect: ask, tool: workspace.write, auto_ok: true", "effect: ask, tool: workspace.write, roles: auditor", ""),
        ("effect: deny, tool: workspace.write, roles: auditor", "effect: ask, tool: workspace.write, roles: [auditor, approver]", ""),
        ("effect: deny, tool: workspace.write, unless: {roles: auditor}", "effect: ask, tool: workspace.write", ""),
        ("effect: deny, tool: workspace.read, expires: 2026-12-01", "effect: ask, tool: workspace.read", ""),
        ("effect: deny, tool: workspace.exec, command: {any_of: [[git, push, ...]]}", "effect: ask, tool: workspace.exec, command: {any_of: [[git, ...]]}", ""),
        ("effect: deny, tool: workspace.exec, command: {any_of: [[rm, ...]], any_flag: [-r]}", "effect: ask, tool: workspace.exec, command: {any_of: [[rm, ...]]}", ""),
    ],
)  # fmt: skip
def test_a_rule_that_another_makes_useless_is_found_and_no_other(found, one, other, shadowed):
    told = [
        (line, message)
        for line, message in found(f"{{id: one, {one}}}", f"{{id: other, {other}}}")
        if "never decides" in message
    ]
    assert [line for line, _ in told] == [{"one": 3, "other": 4}[shadowed]] if shadowed else told == []


def test_a_thousand_rules_are_compared_in_less_than_a_second_beyond_their_load(tmp_path):
    rules = "".join(
        f"- {{id: r{n}, effect: deny, tool: workspace.exec, command: {{any_of: [[tool-{n}, ...]]}}}}\n"
        for n in range(1_000)
    )
    (tmp_path / "policy.yaml").write_text("version: 1\nrules:\n" + rules)
    began = time.process_time()
    load_bundle(tmp_path, list(REGISTRY))
    loaded = time.process_time()
    assert lint(tmp_path, list(REGISTRY), tool_schemas=REGISTRY, day=TODAY) == ()
    assert time.process_time() - loaded < 2 * (loaded - began) + 1


def test_a_pattern_of_many_stars_is_matched_in_bounded_time():
    fits = glob_matcher(("*a" * 30 + "*b", "[a]*" * 15 + "c"))
    began = time.process_time()
    assert not fits("a" * 20_000)
    assert time.process_time() - began < 2


_NAMES = st.sampled_from(["workspace.read", "workspace.write", "workspace.*", "*", "patch.apply", "w*e"])
_TESTS = st.one_of(
    st.fixed_dictionaries({"eq": st.sampled_from(["src/a", "b", 3, 5])}),
    st.fixed_dictionaries({"in": st.lists(st.sampled_from(["src/a", "b", 3, 5, 7]), min_size=1, max_size=3)}),
    st.dictionaries(st.sampled_from(["gt", "ge", "lt", "le"]), st.integers(2, 7), min_size=1, max_size=2),
    st.fixed_dictionaries({"beneath": st.sampled_from(["src", "src/a", ".", "b"])}),
    st.fixed_dictionaries({"glob": st.sampled_from(["src/*", "*", "b", "s?c/a", "[sb]*"])}),
    st.fixed_dictionaries({"host": st.sampled_from(["a.example", "*.example", "*"])}),
)
_COMMANDS = st.fixed_dictionaries(
    {
        "any_of": st.lists(
            st.sampled_from(
                [["git", "..."], ["git", "push", "..."], ["git", ["push", "log"], "..."], ["git", "log"], ["ls"]]
            ),
            min_size=1,
            max_size=2,
        )
    }
)
_MATCHERS = st.fixed_dictionaries(
    {},
    optional={
        "tool": st.lists(_NAMES, min_size=1, max_size=2),
        "server": st.sampled_from(["workspace", "w*", "patch"]),
        "classification": st.lists(st.sampled_from(["read-only", "write", "dangerous"]), min_size=1, max_size=2),
        "roles": st.lists(st.sampled_from(list(Role)), min_size=1, max_size=2),
        "labels": st.dictionaries(st.sampled_from(["l", "m"]), st.sampled_from(["1", "*", "2"]), max_size=2),
        "args": st.dictionaries(st.sampled_from(["/path", "/n"]), _TESTS, min_size=1, max_size=2),
        "command": _COMMANDS,
    },
)
_CALLS = st.tuples(
    st.sampled_from(["workspace.read", "workspace.write", "patch.apply", "workspace.exec"]),
    st.sampled_from(["read-only", "write", "dangerous"]),
    st.fixed_dictionaries(
        {},
        optional={
            "path": st.sampled_from(["src/a", "src", "b", "src/b/c", "a.example", "x.example", 3]),
            "n": st.sampled_from([1, 3, 5, 7, "b"]),
            "command": st.sampled_from(["git push", "git log", "git -c a=b push x", "ls", "ls; git log", "make"]),
        },
    ),
    st.frozensets(st.sampled_from(list(Role))),
    st.dictionaries(st.sampled_from(["l", "m"]), st.sampled_from(["1", "2"]), max_size=2),
)


def test_a_rule_for_any_value_of_a_label_is_none_for_sessions_without_it():
    assert not contains(Matcher.model_validate({"labels": {"l": "*"}}), Matcher.model_validate({"labels": {}}))
    assert not contains(Matcher.model_validate({"labels": {"l": "*"}}), Matcher())


@settings(max_examples=300, deadline=None)
@given(_MATCHERS, _MATCHERS, st.lists(_CALLS, min_size=8, max_size=8), st.sampled_from(["allow", "deny"]))
def test_what_one_matcher_contains_matches_wherever_the_other_does(wide, narrow, calls, effect):
    mixed = {**wide, **narrow}  # else one is hardly ever inside the other
    try:
        one, other = Matcher.model_validate(wide), Matcher.model_validate(mixed)
    except ValidationError:
        assume(False)
    assume(contains(one, other))
    rules = [
        compile_rule(Rule.model_validate({"id": "r", "effect": effect, **matcher}), "", 1) for matcher in (wide, mixed)
    ]
    for name, kind, given_input, roles, labels in calls:
        tool = ExampleTool(name=name, classification=kind)
        caller = subject(roles=tuple(sorted(roles)), labels=labels)
        question = PolicyInput(Call(name=name, input=given_input), tool, caller)
        outer, inner = (rule.match(question) for rule in rules)
        reached = [not rule.matcher.fits_tool(name, tool.classification) for rule in rules]
        # A value of the wrong type makes an ask or a deny match; a tool's schema lets none through.
        if reached[1] and inner.verdict is MatchOutcome.YES and not inner.error:
            assert reached[0]
            assert outer.verdict is MatchOutcome.YES


def test_the_shipped_bundles_have_no_findings_with_the_shipped_tools():
    for name in ("default", "demo", "sandbox"):
        assert lint(REPOSITORY / "policies" / name, list(REGISTRY), tool_schemas=REGISTRY, day=TODAY) == ()
    assert (EXEC.name, WRITE.name) == ("workspace.exec", "workspace.write")


@pytest.mark.parametrize(
    ("body", "is_told"),
    [
        ("tool: workspace.read", True),
        ("tool: [workspace.read, http.fetch]", True),
        ("classification: network", True),
        ("tool: [workspace.read, workspace.write]", False),
        ("tool: workspace.exec", False),
        ("tool: 'workspace.*'", False),
        ("server: workspace", False),
    ],
)
def test_a_preview_of_what_changes_nothing_is_found(found, body, is_told):
    told = found(f"{{id: one, effect: ask, {body}, approval: {{preview: true}}}}")
    assert any("take `preview` off" in message for _, message in told) is is_told


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rules: []", "`version` is missing: write `version: 1`."),
        ("version: 2\nrules: []", "`version`: write `version: 1`."),
        ("version: 1\nrules:\n- {id: 123, effect: deny}", "YAML reads `123` as a number. Quote it: '123'."),
        ("version: 1\nrules:\n- {id: true, effect: deny}", "YAML reads `true` as a boolean. Quote it: 'true'."),
        ("version: 1\nrules:\n\t- {id: a}", "a tab can't indent a line; use spaces"),
        ("version: 1\nrules:\n- {id: a, effect: deny", "a `{` is not closed"),
        ("version: 1\nrules:\n- {id: a, tool: *}", "needs quotes"),
        ("version: 1\nrules:\n- id: a\n  reason: no: never", "a value that holds `: ` needs quotes"),
        ("version: 1\nrules:\n- {id: a, effect: deny, when: 'x ('}", "`rules.a.when`: this is not a valid condition"),
    ],
)
def test_an_error_in_a_file_says_what_to_write(tmp_path, text, said):
    (tmp_path / "a.yaml").write_text(text + "\n", encoding="utf-8")
    assert said in "\n".join(finding.message for finding in lint(tmp_path, ()))


def test_all_errors_of_all_files_are_reported_at_once_in_their_order(tmp_path):
    (tmp_path / "a.yaml").write_text("version: 1\nrules:\n- {id: a, effect: denny}\n- {id: b, efect: ask}\n")
    (tmp_path / "b.yaml").write_text("version: 1\nrules:\n- {id: c, effect: deny, tol: x}\n")
    (tmp_path / "c.yaml").write_text("version: 1\nrules:\n- {id: d, effect: deny}\n")
    found = [(Path(finding.file).name, finding.line, finding.fatal) for finding in lint(tmp_path, ())]
    assert found == [("a.yaml", 3, True), ("a.yaml", 4, True), ("b.yaml", 3, True)]
