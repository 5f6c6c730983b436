"""The output and exit codes of `codesdk policy …`."""

from __future__ import annotations

import io
import json
import sys
from contextlib import closing
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from codesdk.cli.policy import policy_app
from codesdk.cli.policy.decisions import NotACall
from codesdk.policy import PolicyInvalid
from codesdk.storage.database import Database
from codesdk.storage.migration import SchemaBehind, upgrade

REPOSITORY = Path(__file__).parents[3]
DEMO = str(REPOSITORY / "policies" / "demo")
DEFAULT = str(REPOSITORY / "policies" / "default")


@pytest.fixture
def run(capsys, monkeypatch):
    def invoke(*arguments, given=""):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given.encode())))
        code = policy_app([str(argument) for argument in arguments], standalone_mode=False)
        return code, capsys.readouterr().out

    return invoke


def calls(*lines):
    return "".join(json.dumps({"tool": "workspace.exec", "input": {"command": line}}) + "\n" for line in lines)


def test_decide_answers_each_line_in_its_place_and_ends_with_65_where_one_is_no_call(run):
    given = calls("git status", "rm -rf x") + "nope\n\n[1]\n" + calls("make")
    code, out = run("decide", "--policies", DEMO, given=given)
    answers = [json.loads(line) for line in out.splitlines()]
    assert [answer.get("effect") for answer in answers] == ["allow", "deny", None, None, "ask"]
    assert answers[1]["rules"] == ["no-delete"]
    assert {answer["error"]["code"] for answer in answers[2:4]} == {"NOT_A_CALL"}
    assert code == 65


def test_decide_takes_principal_mode_and_session(run):
    call = {"tool": "workspace.write", "input": {"path": "a", "content": ""}}
    more = [
        {},
        {"mode": "ask"},
        {"principal": "prn_1"},
        {"session": {"labels": {"a": "b"}}},
        {"principal": {"roles": ["x"]}},
    ]
    given = "".join(json.dumps({**call, **one}) + "\n" for one in more)
    code, out = run("decide", "--policies", DEFAULT, given=given)
    assert [json.loads(line)["effect"] for line in out.splitlines()] == ["allow", "ask", "allow", "allow", "allow"]
    assert code == 0
    assert json.loads(out.splitlines()[1])["obligations"]["approval"]["timeout_s"] == 600


def test_explain_shows_every_rules_part(run):
    code, out = run("explain", "-c", "rm -rf x", "--policies", DEMO, "--json")
    told = json.loads(out)
    assert (code, told["effect"]) == (0, "deny")
    assert [entry["rule"] for entry in told["trace"] if entry["matched"]] == ["no-delete"]
    assert len(told["trace"]) > 5


def test_lint_ends_with_65_for_a_bundle_that_cannot_be_used_and_names_the_place(run, tmp_path):
    (tmp_path / "policy.yaml").write_text("version: 1\nrules:\n- {id: a, efect: allow}\n")
    code, out = run("lint", tmp_path)
    assert code == 65
    assert f"{tmp_path}/policy.yaml:3:11: error: " in out
    assert "Did you mean `effect`?" in out
    assert run("lint", DEMO)[0] == 0


def test_every_command_refuses_a_rule_that_names_a_tool_that_does_not_exist(run, tmp_path, monkeypatch):
    mine = tmp_path / "tenants" / "ten_1"
    (mine / "tests").mkdir(parents=True)
    (mine / "policy.yaml").write_text("version: 1\nrules:\n- {id: a, effect: deny, tool: workspace.raed}\n")
    (mine / "tests" / "t.yaml").write_text(
        "version: 1\ncases: [{name: n, tool: workspace.read, input: {}, expect: deny}]\n"
    )
    code, out = run("lint", mine)
    assert code == 65
    assert f"{mine}/policy.yaml:3:25: error: The rule `a` names the unknown tool `workspace.raed`." in out
    for words in (("test", mine), ("explain", "-c", "ls", "--policies", mine), ("diff", DEMO, mine, "--calls", "-")):
        with pytest.raises(PolicyInvalid, match=r"unknown tool `workspace\.raed`"):
            run(*words)
    (mine / "policy.yaml").write_text(
        "version: 1\nenable: [workspace.exec]\nrules: [{id: a, effect: deny, tool: mine.count}]\n"
    )
    monkeypatch.setenv("CODESDK_TENANT_POLICIES_DIR", str(tmp_path / "tenants"))
    (tmp_path / "tools" / "ten_1").mkdir(parents=True)
    monkeypatch.setenv("CODESDK_TENANT_TOOLS_DIR", str(tmp_path / "tools"))
    code, out = run("lint", mine)
    assert (code, "cannot enable `workspace.exec`" in out, "unknown tool `mine.count`" in out) == (65, True, True)


NOTED = """\
version: 1
commands:
  mytool: {runs: --hook}
  black: {harmless: --config}
rules:
- {id: tests, effect: allow, tool: workspace.exec, command: {any_of: [[pytest, ...], [uv, run, pytest, ...]]}}
- {id: trusted, effect: allow, tool: workspace.exec, command: {any_of: [[[sort, unheard-of], ...]], trust_arguments: true}}
- {id: mine, effect: allow, tool: workspace.exec, command: {any_of: [[mytool, ...], [black, ...], [npx, ...], [find, ...]]}}
- {id: many, effect: allow, tool: workspace.exec, command: {any_of: [[[rg, sort, tar, curl, wget, man, cat], ...]]}}
- {id: exact, effect: allow, tool: workspace.exec, command: {any_of: [[mypy]]}}
- {id: asked, effect: ask, tool: workspace.exec, command: {any_of: [[git, ...]]}}
"""


def test_lint_notes_what_the_arguments_of_a_rule_let_through_and_exclude(run, tmp_path):
    (tmp_path / "policy.yaml").write_text(NOTED)
    code, out = run("lint", tmp_path, "--strict")
    notes = [line.removeprefix(f"{tmp_path}/policy.yaml:") for line in out.splitlines() if ": note: " in line]
    assert code == 0
    assert f"{tmp_path}: nothing found" in out
    tests, *others = notes
    assert tests.startswith(
        "6:1: note: The rule `tests`: `pytest ...`, `uv run pytest ...` excludes what runs code (`-p`, "
    )
    assert "what deletes files (`--basetemp`, `--cache-clear`)" in tests
    assert others == [
        (
            "7:1: note: The rule `trusted`: `sort ...` also allows what runs code (`--compress-program`), what writes files (`-o`, "
            "`--output`), because of `trust_arguments`."
        ),
        (
            "7:1: note: The rule `trusted`: `unheard-of ...` allows every option; if some run code or write, list them under "
            "`commands`."
        ),
        (
            "8:1: note: The rule `mine`: `black ...` also allows what reads configuration (`--config`), because the bundle lists "
            "them as harmless."
        ),
        "8:1: note: The rule `mine`: `mytool ...` excludes what runs code (`--hook`).",
        *[line for line in others if "`npx ...` excludes" in line and line.endswith("the command that it runs.")],
        "8:1: note: The rule `mine`: `find ...` excludes tests that run, write or delete (`-exec`, `-fprint`, `-delete`).",
        (
            "9:1: note: The rule `many`: `...` excludes the arguments of `curl`, `man`, `rg`, `sort`, `tar`, `wget` that run code "
            "or write."
        ),
    ]


def test_lint_notes_are_no_findings_in_any_format(run, tmp_path):
    (tmp_path / "policy.yaml").write_text(NOTED)
    told = json.loads(run("lint", tmp_path, "--format", "json")[1])
    assert told["findings"] == 0
    assert {item["kind"] for item in told["items"]} == {"note"}
    assert "::notice file=" in run("lint", tmp_path, "--format", "github")[1]
    assert ET.fromstring(run("lint", tmp_path, "--format", "junit")[1].encode()).get("tests") == "0"


def test_lint_is_strict_about_warnings_only_where_it_is_told(run, tmp_path):
    (tmp_path / "policy.yaml").write_text("version: 1\nrules:\n- {id: a, effect: allow}\n")
    assert run("lint", tmp_path)[0] == 0
    code, out = run("lint", tmp_path, "--strict", "--format", "github")
    assert code == 1
    assert out.startswith(f"::warning file={tmp_path}/policy.yaml,line=3,col=")


def test_tests_fail_with_1_and_are_told_in_each_form(run, tmp_path):
    (tmp_path / "policy.yaml").write_text(
        "version: 1\ndefault: ask\nrules:\n- {id: a, effect: allow, tool: workspace.read}\n"
    )
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "t.yaml").write_text(
        "version: 1\ncases:\n- {name: 'one <&\"', tool: workspace.read, input: {}, expect: deny}\n"
        "- {name: two, tool: workspace.read, input: {}, expect: allow}\n"
    )
    code, out = run("test", tmp_path)
    assert code == 1
    assert 't.yaml:3:1: error: one <&": expected deny, got allow by a' in out
    assert "1 of 2 tests pass, 1 of 1 rules reached" in out
    suite = ET.fromstring(run("test", tmp_path, "--format", "junit")[1])
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    assert [case.get("name") for case in suite if case.find("failure") is not None] == ['one <&"']
    told = json.loads(run("test", tmp_path, "--format", "json")[1])
    assert (told["tests"], told["failed"], told["rules"]) == (2, 1, {"a": 2})


def test_a_bundle_without_tests_does_not_pass(run, tmp_path):
    (tmp_path / "policy.yaml").write_text("version: 1\nrules:\n- {id: a, effect: allow, tool: workspace.read}\n")
    code, out = run("test", tmp_path)
    assert code == 1
    assert "There is no test" in out


def test_diff_ends_with_1_on_new_allows_unless_they_are_accepted(run, tmp_path):
    given = tmp_path / "calls.jsonl"
    given.write_text(calls("git status", "pip install x", "sudo ls"))
    code, out = run("diff", DEFAULT, DEMO, "--calls", given)
    assert code == 1
    assert "deny→allow by inspect" in out
    assert "deny→deny 1" in out
    assert run("diff", DEFAULT, DEMO, "--calls", given, "--accept-allows")[0] == 0
    assert run("diff", DEMO, DEFAULT, "--calls", given)[0] == 0
    code, out = run("diff", DEFAULT, DEMO, "--calls", "-", "--format", "json", given=given.read_text())
    assert json.loads(out)["matrix"] == {"deny→allow": 1, "deny→ask": 1, "deny→deny": 1}


def test_a_wrong_line_of_calls_is_named_by_its_number(run, tmp_path):
    given = tmp_path / "calls.jsonl"
    given.write_text(calls("ls") + "{}\n")
    with pytest.raises(Exception, match="Line 2: tool: Field required"):
        run("diff", DEFAULT, DEMO, "--calls", given)


def test_a_line_that_is_no_json_is_named_once(run, tmp_path):
    given = tmp_path / "calls.jsonl"
    given.write_text(calls("ls") + "nope\n")
    with pytest.raises(NotACall) as told:
        run("diff", DEFAULT, DEMO, "--calls", given)
    assert str(told.value) == "Line 2: This is not a JSON object: Expecting value, at character 1."


def test_a_suggestion_for_a_denied_call_says_that_it_would_allow_what_is_denied(run):
    code, out = run("suggest", calls("git push").strip(), "--policies", DEMO)
    assert code == 0
    assert out.startswith(
        "# Now: deny by no-publish.\n# Publishing is done by people.\n# The rule below would ALLOW a call that is denied"
    )
    assert "ALLOW a call" not in run("suggest", calls("pip install x").strip(), "--policies", DEMO)[1]


def test_calls_of_an_older_schema_are_not_read_and_the_migration_is_named(run, tmp_path):
    with closing(Database(f"sqlite:///{tmp_path / 'codesdk.db'}")) as database:
        upgrade(database, "0004")
    for command in (("replay", DEMO), ("diff", DEFAULT, DEMO), ("suggest", "call_1")):
        with pytest.raises(SchemaBehind, match="revision 0004") as told:
            run(*command, "--data-dir", tmp_path)
        assert "codesdk migrate" in told.value.advice()


def test_schema_is_the_shipped_one(run):
    code, out = run("schema")
    assert code == 0
    assert out == (REPOSITORY / "policies" / "policy.schema.json").read_text()


def test_fmt_checks_changes_and_then_has_nothing_to_do(run, tmp_path):
    path = tmp_path / "policy.yaml"
    path.write_text("version:   1\nrules:\n- {id: a, effect: allow}\n")
    path.chmod(0o640)
    assert run("fmt", tmp_path, "--check")[0] == 1
    assert path.read_text().startswith("version:   1")
    assert run("fmt", tmp_path)[0] == 0
    assert path.read_text() == "version: 1\nrules:\n  - {id: a, effect: allow}\n"
    assert path.stat().st_mode & 0o777 == 0o640
    assert run("fmt", tmp_path, "--check") == (0, "")
    path.write_bytes(b"\xff")
    with pytest.raises(PolicyInvalid, match="cannot be read"):
        run("fmt", tmp_path)


def test_the_shipped_bundles_are_laid_out(run):
    assert run("fmt", REPOSITORY / "policies", "--check") == (0, "")


def test_a_suggestion_for_a_call_that_a_rule_asks_about_says_that_the_rule_stays_stricter(run):
    code, out = run("suggest", calls("pip install x").strip(), "--policies", DEMO)
    assert code == 0
    assert "# Now: ask by change-environment." in out
    assert "stays stricter" in out


def call(tool, mode, **given):
    return json.dumps({"tool": tool, "mode": mode, "input": given})


@pytest.mark.parametrize("mode", ["auto", "yolo"])
def test_nothing_is_suggested_for_a_call_that_is_allowed_already(run, mode):
    code, out = run("suggest", call("workspace.exec", mode, command="git status"), "--policies", DEMO)
    assert code == 0
    assert out.startswith("# Now: allow by ")
    assert out.splitlines()[1:] == ["# No suggestion: such a call is allowed already."]


def test_nothing_is_suggested_where_only_the_sessions_mode_asks(run):
    code, out = run("suggest", call("workspace.write", "ask", path="a", content=""), "--policies", DEFAULT)
    assert code == 0
    assert out.startswith("# Now: ask by ")
    assert out.splitlines()[1:] == [
        "# No suggestion: the rules allow such a call. The session's mode asks, and no rule changes that."
    ]


def test_a_rule_is_suggested_where_only_a_mode_allows_and_its_test_is_of_the_mode_auto(run):
    code, out = run("suggest", call("workspace.exec", "yolo", command="pip install x"), "--policies", DEMO)
    assert code == 0
    assert out.startswith("# Now: allow by ")
    assert "effect: allow" in out
    assert "mode:" not in out
