"""Tests of bundles: failures, coverage and mutation testing."""

from __future__ import annotations

import pytest

from codesdk.policy import PolicyInvalid, load_bundle
from codesdk.policy.testing.cases import coverage, read_expectations, run_cases
from codesdk.policy.testing.mutation import run_mutants
from codesdk.registry import Registry

from .conftest import EXEC, READ, REPOSITORY, WRITE

KNOWN = {tool.name: tool for tool in (READ, WRITE, EXEC)}


@pytest.fixture
def bundle_with(tmp_path, write_bundle):
    def make(rules, tests):
        bundle = write_bundle(f"default: ask\nrules:\n{rules}")
        (tmp_path / "tests").mkdir(exist_ok=True)
        (tmp_path / "tests" / "a.yaml").write_text(f"version: 1\n{tests}")
        return bundle, read_expectations(tmp_path)

    return make


def problems(bundle, expectations):
    return [result.problem for result in run_cases(expectations, KNOWN, bundle) if result.problem]


def test_a_case_passes_or_says_what_came_instead(bundle_with):
    bundle, expectations = bundle_with(
        "- {id: a, effect: deny, tool: workspace.write, reason: Not here.}\n",
        "cases:\n- {name: one, tool: workspace.write, input: {path: x}, expect: deny, by: a}\n"
        "- {name: two, tool: workspace.write, input: {path: x}, expect: allow}\n"
        "- {name: three, tool: workspace.read, input: {path: x}, expect: ask, by: a}\n"
        "- {name: four, tool: workspace.write, input: {path: x}, expect: deny, by: default}\n",
    )
    assert problems(bundle, expectations) == [
        "expected allow, got deny by a: Not here.",
        "expected `a` to decide, got default",
        "expected no rule to decide, a did",
    ]
    assert [expectation.line for expectation in expectations] == [3, 4, 5, 6]


def test_a_table_tries_each_row_in_each_mode(bundle_with):
    bundle, expectations = bundle_with(
        "- {id: a, effect: allow, tool: workspace.write}\n",
        "tables:\n- name: t\n  tool: workspace.write\n  inputs: [{path: x}, {path: y}]\n  modes: {ask: ask, auto: allow, yolo: allow}\n",
    )
    assert len(expectations) == 6
    assert problems(bundle, expectations) == []


def test_who_asks_counts(bundle_with):
    bundle, expectations = bundle_with(
        "- {id: a, effect: deny, roles: [auditor]}\n- {id: b, effect: allow, labels: {branch: 'scratch/*'}}\n",
        "cases:\n- {name: one, tool: workspace.read, input: {}, as: {roles: [auditor]}, expect: deny}\n"
        "- {name: two, tool: workspace.read, input: {}, as: {labels: {branch: scratch/1}}, expect: allow}\n",
    )
    assert problems(bundle, expectations) == []


def test_rules_for_tools_that_are_off_or_not_there_yet_can_be_tested(bundle_with):
    bundle, expectations = bundle_with(
        "- {id: a, effect: allow, command: {any_of: [[ls]]}}\n- {id: b, effect: deny, classification: network}\n",
        "tools: {some.lookup: network}\nenable: [workspace.exec]\ncases:\n- {name: one, command: ls, expect: allow}\n"
        "- {name: two, tool: some.lookup, input: {}, expect: deny, by: b}\n",
    )
    assert problems(bundle, expectations) == []


def test_coverage_counts_each_rules_matches(bundle_with):
    bundle, expectations = bundle_with(
        "- {id: a, effect: allow}\n- {id: b, effect: deny, tool: workspace.write}\n- {id: c, effect: ask, roles: [auditor]}\n",
        "cases:\n- {name: one, tool: workspace.write, input: {}, expect: deny}\n- {name: two, tool: workspace.read, input: {}, expect: allow}\n",
    )
    assert coverage(run_cases(expectations, KNOWN, bundle), bundle) == {"a": 2, "b": 1, "c": 0}


@pytest.mark.parametrize(
    ("tests", "said"),
    [
        ("cases: [{name: x, expect: deny}]", "either `input` or `command`"),
        ("cases: [{name: x, command: ls, expect: dney}]", "allow"),
        ("cases: [{name: x, comand: ls, expect: deny}]", "Did you mean `command`"),
        ("tables: [{name: x, commands: [ls]}]", "either `expect` or `modes`"),
        ("tables: [{name: x, expect: deny}]", "has `commands` or `inputs`"),
    ],
)
def test_a_wrong_file_of_tests_is_refused_with_its_place(bundle_with, tests, said):
    with pytest.raises(PolicyInvalid, match=r"a\.yaml:2:") as refused:
        bundle_with("- {id: a, effect: allow}\n", tests)
    assert said in f"{refused.value} {refused.value.advice()}"


def test_a_damage_that_the_tests_notice_and_one_that_they_do_not(bundle_with):
    bundle, expectations = bundle_with(
        "- {id: a, effect: deny, tool: workspace.write, args: {/path: {eq: x}}}\n- {id: z, effect: ask, tool: patch.apply}\n",
        "cases:\n- {name: one, tool: workspace.write, input: {path: x}, expect: deny}\n",
    )
    mutants = run_mutants(expectations, KNOWN, bundle)
    killed = {mutant.damage: mutant.killed for mutant in mutants if mutant.rule == "a"}
    assert killed == {
        "is missing": True,
        "says allow": True,
        "says ask": True,
        "has no `tool`": False,
        "does not look at `/path`": False,
    }


@pytest.mark.parametrize("name", ["default", "demo", "sandbox"])
def test_a_shipped_bundles_tests_pass_reach_every_rule_and_notice_nine_damages_of_ten(name):
    tools = {tool.name: tool for tool in Registry.load(REPOSITORY / "tool-registry").tools()}
    directory = REPOSITORY / "policies" / name
    bundle = load_bundle(directory, list(tools))
    expectations = read_expectations(directory)
    results = list(run_cases(expectations, tools, bundle))
    assert [result.problem for result in results if result.problem] == []
    assert [rule for rule, count in coverage(results, bundle).items() if not count] == []
    mutants = list(run_mutants(expectations, tools, bundle))
    assert sum(mutant.killed for mutant in mutants) >= 0.9 * len(mutants)
