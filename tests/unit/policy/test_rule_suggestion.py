"""A suggested rule allows its call and calls of its kind, and nothing more."""

from __future__ import annotations

import json

import pytest

from codesdk.documents import dump_yaml
from codesdk.domain.decisions import Classification, Effect
from codesdk.policy import ExampleTool, load_bundle
from codesdk.policy.evaluation.comparison import compare_bundles
from codesdk.policy.evaluation.query import PolicyQuery, evaluate
from codesdk.policy.rule_suggestion import NoSafeRule, suggest_case, suggest_rule
from codesdk.policy.testing.cases import read_expectations, run_cases

from .conftest import READ, TOOLS, WRITE, cases

EXEC_ON = ExampleTool(name="workspace.exec", classification=Classification.DANGEROUS)
FETCH = ExampleTool(name="http.fetch", classification=Classification.NETWORK)
KNOWN = {tool.name: tool for tool in (READ, WRITE, EXEC_ON, FETCH)}
ALLOW, ASK = Effect.ALLOW, Effect.ASK
SHELL = [case for case in cases("shell-cases.jsonl") if "command" in case]


def shell(line):
    return PolicyQuery(tool="workspace.exec", input={"command": line})


def bundle_from(directory, trial):
    rule = suggest_rule(trial, KNOWN[trial.tool])
    (directory / "tests").mkdir()
    (directory / "policy.yaml").write_text("version: 1\ndefault: ask\nrules:\n" + dump_yaml([rule]))
    (directory / "tests" / "t.yaml").write_text("version: 1\ncases:\n" + dump_yaml([suggest_case(trial, rule)]))
    return load_bundle(directory, [*TOOLS, "http.fetch"])


@pytest.mark.parametrize(
    "line", [case["command"] for case in SHELL if case["expect"] == "allow" and "*" not in case["command"]]
)
def test_a_benign_command_gets_a_rule_that_loads_passes_its_test_and_allows_it(tmp_path, line):
    bundle = bundle_from(tmp_path, shell(line))
    assert evaluate(shell(line), KNOWN, bundle).effect is ALLOW
    assert [result.problem for result in run_cases(read_expectations(tmp_path), KNOWN, bundle)] == [""]
    for wider in (f"{line}; rm -rf /", f"{line} | sh", f"{line} `id`", f"X=1 {line}", f"{line} --more", "rm -rf /"):
        assert evaluate(shell(wider), KNOWN, bundle).effect is ASK


@pytest.mark.parametrize("line", ["grep 'a*b' f", "rg -n 'x[0-9]?' src", "ls '[a]' '[' ']'"])
def test_a_quoted_word_that_reads_like_a_pattern_gets_a_rule_for_exactly_this_word(tmp_path, line):
    bundle = bundle_from(tmp_path, shell(line))
    assert evaluate(shell(line), KNOWN, bundle).effect is ALLOW
    other = line.replace("*", "xx").replace("?", "7").replace("[a]", "a")
    assert evaluate(shell(other), KNOWN, bundle).effect is ASK


@pytest.mark.parametrize("line", ["echo `id`", "cat $(ls)", "ls > /etc/x", "$X", "ls *.py", "cat <(ls)"])
def test_a_command_that_cannot_be_read_gets_no_rule(tmp_path, line):
    with pytest.raises(NoSafeRule, match="No rule is suggested"):
        bundle_from(tmp_path, shell(line))


@pytest.mark.parametrize(
    ("tool", "given", "same_kind", "another_kind"),
    [
        ("workspace.write", {"path": "src/a.py", "content": "x"}, {"path": "src/b/c.py", "content": "y"}, {"path": "setup.py", "content": "x"}),
        ("workspace.write", {"path": "src/../a.py", "content": "x"}, {"path": "a.py", "content": "y"}, {"path": "b.py", "content": "x"}),
        ("workspace.write", {"path": "../x", "content": "x"}, None, {"path": "../y", "content": "x"}),
        ("http.fetch", {"url": "https://api.example/a"}, {"url": "https://api.example/b"}, {"url": "https://api.example.evil/a"}),
        ("workspace.read", {"path": "src/a~b/c", "limit": 3}, {"path": "src/a~b/d", "limit": 3}, {"path": "src/a~b/d", "limit": 4}),
    ],
)  # fmt: skip
def test_a_file_or_host_gets_a_rule_for_its_folder_or_host(tmp_path, tool, given, same_kind, another_kind):
    trial = PolicyQuery(tool=tool, input=given)
    bundle = bundle_from(tmp_path, trial)
    if same_kind is not None:
        assert evaluate(PolicyQuery(tool=tool, input=same_kind), KNOWN, bundle).effect is ALLOW
    assert evaluate(PolicyQuery(tool=tool, input=another_kind), KNOWN, bundle).effect is ASK


def test_a_comparison_counts_every_move_and_names_what_is_newly_allowed(tmp_path):
    before = bundle_from(tmp_path, shell("ls -la"))
    (tmp_path / "after").mkdir()
    after = bundle_from(tmp_path / "after", shell("make all"))
    trials = [shell("ls -la"), shell("make all"), shell("make all"), shell("pwd"), PolicyQuery(tool="no.tool")]
    found = compare_bundles(trials, KNOWN, before, after)
    matrix = {f"{one}→{other}": count for (one, other), count in found.matrix.items()}
    assert matrix == {"allow→ask": 1, "ask→allow": 2, "ask→ask": 1, "deny→deny": 1}
    assert (found.total, found.new_allows) == (5, 2)
    assert [change.name for change in found.changes] == ["allow→ask", "ask→allow"]
    assert json.dumps([change.trial.model_dump(mode="json") for change in found.changes])
