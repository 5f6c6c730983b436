"""The output and exit codes of `codesdk tools …`."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codesdk.cli.console.arguments import InputWrong
from codesdk.cli.tools import tools_app
from codesdk.cli.tools.scaffold import create_manifest
from codesdk.domain.decisions import Classification
from codesdk.registry import Registry, UnknownTool, lint

REPOSITORY = Path(__file__).parents[3]
SHIPPED = REPOSITORY / "tool-registry"
GOOD = """name: acme.count
version: 1.0.0
title: Count
description: Counts the words of a file, for when that is asked.
classification: read-only
runs: {argv: [wc, -w, {arg: /path}]}
input_schema:
  type: object
  additionalProperties: false
  properties:
    path: {type: string, maxLength: 9, description: "Of a file."}
examples: [{input: {path: a.txt}}]
"""


@pytest.fixture
def run(capsys):
    def invoke(*arguments):
        code = tools_app([str(argument) for argument in arguments], standalone_mode=False)
        return code or 0, capsys.readouterr().out

    return invoke


def test_the_shipped_manifests_lint_clean(run):
    assert run("lint", SHIPPED, "--strict")[0] == 0
    assert lint([]) == ()


@pytest.mark.parametrize(
    ("old", "new", "place", "words"),
    [
        ("Counts the words of a file, for when that is asked.", "Counts.", (4, 1), "description is short"),
        ("examples: [{input: {path: a.txt}}]\n", "", (1, 1), "no example"),
        (', description: "Of a file."', "", (11, 5), "`path` has no description"),
        ("maxLength: 9, ", "", (11, 5), "give it a `maxLength`"),
        ("arg: /path", "arg: /paht", (6, 23), "Did you mean `/path`?"),
        ("[wc, -w, {arg: /path}]", "[python3, -c, {arg: /path}]", (6, 28), "the input would be code"),
        ("[wc, -w, {arg: /path}]", "[bash, run.sh, {arg: /path}]", (5, 1), "A shell is not read-only"),
        ("[wc, -w, {arg: /path}]", "[wc]", (11, 5), "`path` is not used"),
        ("{input: {path: a.txt}}", "{input: {path: a.txt}, varies: [x]}", (12, 35), "`x` is not a key"),
    ],
)
def test_lint_says_what_an_author_should_look_at(*, run, tmp_path, old, new, place, words):
    assert old in GOOD
    (tmp_path / "a.yaml").write_text(GOOD.replace(old, new))
    found = lint([tmp_path / "a.yaml"])
    assert [(finding.line, finding.column) for finding in found if words in finding.message] == [place], found
    assert run("lint", tmp_path)[0] == 0
    assert run("lint", tmp_path, "--strict")[0] == 1


def test_lint_looks_at_every_file_and_ends_with_65_where_one_cannot_be_used(run, tmp_path):
    (tmp_path / "a.yaml").write_text(GOOD.replace("title:", "titel:"))
    (tmp_path / "b.yaml").write_text(GOOD)
    (tmp_path / "c.yaml").write_text(GOOD)
    (tmp_path / "d.yaml").write_text(GOOD.replace("type: string", "pattern: '('").replace("acme.count", "acme.d"))
    code, out = run("lint", tmp_path)
    assert code == 65
    assert f"{tmp_path}/a.yaml:3:1: error: `titel` is not a known key here. Did you mean `title`?" in out
    assert "c.yaml:1:1: error: `acme.count` is taken by b.yaml." in out
    assert f"{tmp_path}/d.yaml:11:12: error: This regular expression" in out
    told = json.loads(run("lint", tmp_path, "--format", "json")[1])
    assert (told["usable"], told["findings"]) == (False, 3)
    assert f"::error file={tmp_path}/a.yaml,line=3,col=1::" in run("lint", tmp_path, "--format", "github")[1]
    assert run("lint", tmp_path / "none")[0] == 65


def test_lint_looks_at_the_prompts_beside_the_manifests(run, tmp_path):
    (tmp_path / "a.yaml").write_text(GOOD)
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "p.yaml").write_text('version: 1\nname: p\nmessages:\n  - text: "Read {paht}"\n')
    code, out = run("lint", tmp_path)
    assert (code, f"{tmp_path}/prompts/p.yaml:4:" in out, "`paht` is not an argument" in out) == (65, True, True)


def test_lint_of_a_tenants_tools_refuses_a_name_of_the_installation(run, tmp_path):
    (tmp_path / "a.yaml").write_text(GOOD.replace("acme.count", "workspace.read"))
    assert run("lint", tmp_path)[0] == 0
    code, out = run("lint", tmp_path, "--own")
    assert (code, "would shadow `workspace.read`" in out) == (65, True)


def test_list_and_show_tell_the_hash_the_command_and_what_policy_says(run):
    listed = json.loads(run("list", "--json")[1])["tools"]
    by_name = {tool["name"]: tool for tool in listed}
    assert by_name["workspace.read"]["schema_hash"] == Registry.load(SHIPPED).resolve("workspace.read").schema_hash
    assert "workspace.exec" in run("list")[1]
    assert (by_name["workspace.read"]["policy"], by_name["workspace.exec"]["policy"]) == (
        {"calls": "depends", "by": ["secrets"]},
        {"calls": "off", "by": ["switched off in its manifest"]},
    )
    eager = ("list", "--policies", REPOSITORY / "policies" / "demo", "--mode", "yolo", "--json")
    stands = {tool["name"]: tool["policy"] for tool in json.loads(run(*eager)[1])["tools"]}
    assert (stands["http.fetch"], stands["workspace.delete"]) == (
        {"calls": "asked", "by": ["network"]},
        {"calls": "off", "by": ["no-delete-tool"]},
    )
    default = ("--policies", REPOSITORY / "policies" / "default")
    shown = json.loads(run("show", "workspace_delete", *default, "--json")[1])
    assert shown["runs"] == "built in: workspace.delete"
    assert [one["rules"] for one in shown["policy"]["auto"]["examples"]] == [["write"], ["delete-tree"]]
    assert shown["policy"]["auto"]["allowed"] == "depends"
    _, text = run("show", "http.fetch", *default)
    assert "example 1: ask by network" in text
    assert "in the mode auto: depends on the input: network, fetch-inside, secrets" in text
    text = run("show", "workspace.write", "--policies", REPOSITORY / "policies" / "demo")[1]
    assert "in the mode ask: always needs approval: the mode ask" in text
    assert "in the mode auto: depends on the input: secrets" in text
    with pytest.raises(UnknownTool, match=r"Did you mean `workspace\.read`\?"):
        run("show", "workspace.raed")


def test_show_says_what_policy_says_to_a_role(run, tmp_path):
    (tmp_path / "p.yaml").write_text(
        "version: 1\nrules: [{id: a, effect: allow, tool: workspace.read, roles: [developer]}]\n"
    )
    words = ("show", "workspace.read", "--policies", tmp_path, "--json")
    assert json.loads(run(*words)[1])["policy"]["auto"]["allowed"] == "never"
    told = json.loads(run(*words, "--role", "developer")[1])["policy"]
    assert (told["auto"]["allowed"], told["roles"]) == ("always", ["developer"])


def test_a_new_manifest_lints_clean_and_takes_nothings_place(run, tmp_path):
    words = ("new", "text.cut", "--command", "cut -d , -f {field:integer} {path}", "--stdin", "--to", tmp_path)
    assert run(*words)[0] == 0
    assert run("lint", tmp_path, "--strict")[0] == 0
    tool = Registry.load(tmp_path).resolve("text.cut")
    assert tool.argv({"field": 2, "path": "a b", "stdin": ""}) == ("cut", "-d", ",", "-f", "2", "a b")
    assert (tool.classification, tool.runs.stdin) == ("dangerous", "/stdin")
    before = (tmp_path / "text.cut.yaml").read_text()
    with pytest.raises(InputWrong, match="exists already"):
        run(*words)
    assert (tmp_path / "text.cut.yaml").read_text() == before


@pytest.mark.parametrize(
    ("name", "command", "words"),
    [
        ("nodots", "wc", "not a tool name"),
        ("../a.b", "wc", "not a tool name"),
        ("a.b", "", "is empty"),
        ("a.b", "'wc", "split into words"),
        ("a.b", "{path} x", "cannot come from the input"),
        ("a.b", "wc --max={n}", "only part of a word"),
        ("a.b", "wc {n} {n}", "twice"),
        ("a.b", "wc {path", "not a valid placeholder"),
        ("a.b", "wc {n:int}", "not a valid placeholder"),
    ],
)
def test_what_cannot_be_a_command_is_refused_in_words(*, run, tmp_path, name, command, words):
    with pytest.raises(InputWrong, match=words):
        run("new", name, "--command", command, "--to", tmp_path)
    assert list(tmp_path.iterdir()) == []


@given(
    st.lists(st.text(st.characters(blacklist_categories=["Cs", "Cc"]), min_size=1, max_size=9), min_size=1, max_size=4)
)
def test_every_command_that_is_taken_gives_its_own_words(tmp_path_factory, words):
    place = tmp_path_factory.mktemp("made")
    try:
        create_manifest("a.b", shlex.join(words), None, Classification.WRITE, stdin=False, directory=place)
    except InputWrong:
        return
    tool = Registry.load(place).resolve("a.b")
    assert tool.argv(dict(tool.examples[0].input))[0] == words[0]
