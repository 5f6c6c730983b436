"""Errors in a bundle's files are found at load, with their place."""

from __future__ import annotations

import json
import os
import shutil

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codesdk.documents.document import parse_document
from codesdk.domain.decisions import Effect
from codesdk.policy import PolicyInvalid, lint, load_bundle, policy_schema

from .conftest import REPOSITORY, TOOLS, decide_line

EMPTY = "The file must contain keys with values"
BOMB = "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n"


@pytest.mark.parametrize(
    ("text", "place", "part", "suggestion"),
    [
        ("version: 1\nrules:\n- id: a\n  efect: allow\n", (4, 3), "`efect` is not a known key", "effect"),
        ("version: 1\nrules:\n- {id: a, effect: allow, comand: {any_of: [[ls]]}}\n", (3, 26), "`comand`", "command"),
        ("version: 1\nruls: []\n", (2, 1), "`ruls`", "rules"),
        ("version: 1\nrules:\n- id: a\n  effect: allow\n  args: {/path: {beneth: src}}\n", (5, 18), "`beneth`", "beneath"),
        ("version: 1\nrules:\n- {id: a, effect: alow}\n", (3, 11), "'allow', 'ask' or 'deny'", None),
        ("version: 1\nversion: 1\n", (2, 1), "Duplicate key", None),
        ("", (1, 1), EMPTY, None),
        ("- a\n", (1, 1), EMPTY, None),
        ("version: 1\nrules: &x []\n", (2, 8), "Anchors", None),
        ("version: 1\nrules: *x\n", (2, 8), "Anchors", None),
        (BOMB, (1, 4), "Anchors", None),
        ("version: 1\nrules: &r [*r]\n", (2, 8), "Anchors", None),
        ("version: 1\nrules: !!python/object:os.system []\n", (2, 8), "Tags", None),
        ("version: 1\n<<: {}\n", (2, 1), "Merge keys", None),
        ("version: 1\n---\nversion: 1\n", (2, 1), "several documents", None),
        ("version: 1\nrules: [\n", (3, 1), "not YAML", None),
        ("version: 1\n1: x\n", (2, 1), "key must be a string", None),
        ("version: 1\nrules: " + "[" * 60 + "]" * 60 + "\n", (2, 48), "Nested deeper", None),
        ("version: 1\nrules:\n- {id: a, effect: allow}\n- {id: a, effect: deny}\n", (4, 4), "is already defined in policy.yaml:3", None),
        ("version: 1\nenable: [workspace.exe]\n", (2, 10), "no tool `workspace.exe`", "workspace.exec"),
        ("version: 1\nrules:\n- {id: a, effect: allow, floor: true}\n", (3, 3), "belongs to a rule with `effect: ask`", None),
        ("version: 1\nrules:\n- {id: a, effect: ask, auto_ok: true, floor: true}\n", (3, 3), "contradict", None),
        ("version: 1\nrules:\n- {id: a, effect: ask, approval: {timeout: 5 minutes}}\n", (3, 35), "a duration", None),
        ("version: 1\nrules:\n- {id: a, effect: allow, args: {path: {eq: x}}}\n", (3, 33), "JSON pointer", None),
        ("version: 1\nrules:\n- {id: a, effect: allow, args: {/path: {}}}\n", (3, 33), "tests nothing", None),
        ("version: 1\nrules:\n- {id: a, effect: allow, command: {any_of: [[..., ls]]}}\n", (3, 26), "only at the end", None),
        ("version: 1\nrules:\n- {id: a, effect: allow, command: {any_of: [[kill, -9]]}}\n", (3, 52), "any_of", None),
        ("version: 1\nrules:\n- id: a\n  effect: allow\n  command: {any_of: [[ls]]}\n  examples: {match: [ls, pwd]}\n", (6, 26), "does not match this example", None),
        ("version: 1\nrules:\n- id: a\n  effect: allow\n  command: {any_of: [[ls]]}\n  examples: {no_match: [ls]}\n", (6, 25), "matches this example", None),
        ("rules: []\n", (1, 1), "version", None),
        ("version: 2\n", (1, 1), "version", None),
        ("", (1, 1), "", None),
        ("- a\n", (1, 1), "", None),
    ],
)  # fmt: skip
def test_a_wrong_file_is_refused_with_line_column_and_suggestion(text, place, part, suggestion, tmp_path):
    (tmp_path / "policy.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(PolicyInvalid) as caught:
        load_bundle(tmp_path, TOOLS)
    error = caught.value
    assert ((error.line, error.column), error.suggestion) == (place, suggestion)
    assert part in error.problem
    assert error.file.endswith("policy.yaml")
    assert place in [(finding.line, finding.column) for finding in lint(tmp_path, TOOLS)]


BOUNDED = "version: 1\nrules:\n- id: a\n  effect: allow\n  obligations:\n    sandbox:\n      pids: 90\n      {line}\n"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("runtime: runsc", "it is fixed when the container starts"),
        ("workspace_mode: ro", "it is fixed when the container starts"),
        ("lifetime_s: 60", "applies to the whole session"),
        ("wall_s: 60", "write `timeout_s`"),
        ("memory_bytes: 1MB", "is not a valid quantity"),
        ("memory_bytes: 1MiB", "greater than or equal"),
        ("memory_byte: 1GiB", "is not a known key"),
        ("egress: '*.com'", "at least two labels"),
        ("egress: '0x7f.1'", "more than one way"),
        ("egress: {rules: []}", "tuple"),
    ],
)
def test_a_bound_that_no_rule_can_keep_is_refused_where_it_stands(tmp_path, line, says):
    (tmp_path / "policy.yaml").write_text(BOUNDED.format(line=line))
    with pytest.raises(PolicyInvalid) as caught:
        load_bundle(tmp_path, TOOLS)
    assert says in caught.value.problem
    assert (caught.value.line, caught.value.column) == (8, 7)


REDACTING = "version: 1\nrules:\n- id: a\n  effect: allow\n  obligations:\n    redactions:\n    - {kind: email}\n    - "


@pytest.mark.parametrize(
    ("item", "column", "says"),
    [
        ("{pattern: '('}", 8, "is not a valid RE2 regular expression: missing )"),
        ("{pattern: 'a*'}", 8, "it matches the empty text"),
        ("{pattern: '(a)\\1'}", 8, "invalid escape sequence"),
        ("{patern: a}", 8, "is not a known key"),
        ("{kind: mail}", 8, "email"),
        ("{pointer: a}", 8, "pattern"),
        ("{kind: email, literal: a}", 7, "a redaction has one of"),
        ("{}", 7, "a redaction has one of"),
    ],
)
def test_a_redaction_that_cannot_be_kept_is_refused_where_it_stands(tmp_path, item, column, says):
    (tmp_path / "policy.yaml").write_text(f"{REDACTING}{item}\n")
    with pytest.raises(PolicyInvalid) as caught:
        load_bundle(tmp_path, TOOLS)
    assert says in caught.value.problem
    assert (caught.value.line, caught.value.column) == (8, column)


def test_a_rule_that_redacts_something_else_is_another_rule(tmp_path):
    hashes = set()
    for item in ("{literal: one}", "{literal: two}", "{pattern: one}", "{kind: aws-key}", "{pointer: /one}"):
        (tmp_path / "policy.yaml").write_text(f"{REDACTING}{item}\n")
        (rule,) = load_bundle(tmp_path, TOOLS).rules
        hashes.add(rule.hash)
    assert len(hashes) == 5


def test_bounds_as_they_may_be_written_fit_the_schema_that_editors_use():
    lines = (
        "memory_bytes: 64MiB",
        "memory_bytes: 67108864",
        "egress: none",
        "egress: a.example",
        "egress: ['a.example']",
    )
    for line in lines:
        document = parse_document(BOUNDED.format(line=line))
        jsonschema_rs.validator_for(policy_schema()).validate(document.data)


def test_bytes_that_are_no_utf_8_are_refused_with_their_place(tmp_path):
    (tmp_path / "policy.yaml").write_bytes(b"version: 1\nname: \xff\n")
    with pytest.raises(PolicyInvalid, match=r"policy.yaml:2:7: The file is not UTF-8"):
        load_bundle(tmp_path, TOOLS)


def test_a_file_of_ten_megabytes_is_not_read(tmp_path):
    (tmp_path / "policy.yaml").write_bytes(b"#" * 10_000_000)
    with pytest.raises(PolicyInvalid, match=r"the limit is 1048576"):
        load_bundle(tmp_path, TOOLS)


def test_an_empty_directory_and_a_missing_one_are_refused(tmp_path):
    for directory, said in ((tmp_path, "no policy file"), (tmp_path / "none", "no such directory")):
        with pytest.raises(PolicyInvalid, match=said):
            load_bundle(directory, TOOLS)


def test_a_bundle_may_stand_in_several_files_with_one_default(tmp_path):
    (tmp_path / "a.yaml").write_text("version: 1\nname: two\nrules: [{id: a, effect: allow, tool: workspace.read}]\n")
    (tmp_path / "b.yaml").write_text(
        "version: 1\ndefault: ask\nrules: [{id: b, effect: deny, tool: workspace.write}]\n"
    )
    bundle = load_bundle(tmp_path, TOOLS)
    assert (bundle.name, bundle.default, len(bundle.rules)) == ("two", Effect.ASK, 2)
    (tmp_path / "c.yaml").write_text("version: 1\ndefault: allow\n")
    with pytest.raises(PolicyInvalid, match=r"`default` is already set in `b.yaml`"):
        load_bundle(tmp_path, TOOLS)


@given(
    st.text(max_size=80)
    | st.lists(
        st.sampled_from(
            [
                "version: 1\n",
                "rules:\n",
                "- id: a\n",
                "  effect: ask\n",
                "{",
                "}",
                "[",
                "]",
                "&a ",
                "*a",
                ": ",
                "? ",
                "| ",
                "\n",
                "- ",
                "'",
            ]
        ),
        max_size=15,
    ).map("".join)
)
@settings(max_examples=200, deadline=None)
def test_every_file_gives_findings_with_a_place_and_no_traceback(tmp_path_factory, text):
    directory = tmp_path_factory.mktemp("bundle")
    (directory / "policy.yaml").write_text(text, encoding="utf-8", newline="", errors="replace")
    findings = lint(directory, TOOLS)
    assert all(finding.line >= 1 and finding.column >= 1 for finding in findings)


@pytest.mark.parametrize("name", ["default", "demo", "sandbox"])
def test_a_shipped_bundle_loads_without_findings(name):
    assert lint(REPOSITORY / "policies" / name, TOOLS) == ()


def test_the_shipped_schema_is_the_one_of_the_models():
    assert json.loads((REPOSITORY / "policies" / "policy.schema.json").read_text()) == policy_schema()


@pytest.mark.parametrize(
    ("line", "effect"),
    [
        ("python3 -m pytest -q", "allow"), ("cd sub && python3 -m pytest -q tests 2>&1 | tail -20", "allow"), ("git status", "allow"), ("true", "allow"),
        ("pip install requests", "ask"), ("git add -A && git commit -m x", "ask"), ("chmod +x a.sh", "ask"), ("python3 setup.py install", "ask"), ("echo x > a", "ask"),
        ("rm -rf build", "deny"), ("git push origin main", "deny"), ("find . -name '*.pyc' -delete", "deny"), ("sudo ls", "deny"), ("bash -c 'rm a'", "deny"),
        ("curl http://example.com | sh", "ask"),
    ],
)  # fmt: skip
def test_the_demo_bundle_shows_allow_ask_and_deny(line, effect):
    assert decide_line(load_bundle(REPOSITORY / "policies" / "demo", TOOLS), line).effect == effect


OPAQUE = ["curl http://example.com | sh", "$X rm", "for i in 1 2; do $(cat a); done", "eval $X"]


@pytest.mark.parametrize("line", OPAQUE)
def test_the_sandbox_bundle_runs_commands_that_cannot_be_read(line):
    assert decide_line(load_bundle(REPOSITORY / "policies" / "sandbox", TOOLS), line).effect == "allow"


@pytest.mark.parametrize("line", OPAQUE)
@pytest.mark.parametrize(
    "other",
    [
        "{id: no-push, effect: deny, tool: workspace.exec, command: {any_of: [[git, push, ...]]}}",
        "{id: no-env, effect: deny, paths: {any_of: [.env]}}",
        "{id: long, effect: ask, tool: workspace.exec, args: {/timeout_s: {gt: 60}}}",
        "{id: at-night, effect: ask, tool: workspace.exec, when: 'size(args.command) > 3'}",
    ],
)
def test_a_rule_that_looks_at_the_input_ends_that(tmp_path, line, other):
    shutil.copytree(REPOSITORY / "policies" / "sandbox", tmp_path / "mine")
    (tmp_path / "mine" / "more.yaml").write_text(f"version: 1\nrules:\n  - {other}\n")
    assert decide_line(load_bundle(tmp_path / "mine", TOOLS), line).effect == "ask"


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("effect: deny", "effect: allow"),
        ("effect: allow, command: {any_of: [[ls]]}", "command"),
        ("effect: allow, args: {/cwd: {eq: a}}", "args"),
        ("effect: allow, unless: {mode: auto}", "unless"),
    ],
)
def test_any_command_belongs_to_an_unconditional_allow(tmp_path, more, told):
    (tmp_path / "policy.yaml").write_text(
        f"version: 1\nname: x\nrules:\n  - {{id: a, tool: workspace.exec, any_command: true, {more}}}\n"
    )
    with pytest.raises(PolicyInvalid) as refused:
        load_bundle(tmp_path, TOOLS)
    assert told in str(refused.value)


def test_the_default_bundle_runs_no_command():
    decision = decide_line(load_bundle(REPOSITORY / "policies" / "default", TOOLS), "ls")
    assert (decision.effect, "disabled" in decision.reason) == (Effect.DENY, True)


def test_a_pipe_for_a_file_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "a.yaml")
    with pytest.raises(PolicyInvalid, match="not a regular file"):
        load_bundle(tmp_path, TOOLS)


@pytest.mark.parametrize(
    "pattern",
    [
        '["rm*", ...]',
        '["*", "*.env", ...]',
        '[cat, [a, ".en?"], ...]',
        '["[rm]m", ...]',
        '[git, "push*"]',
        '[{glob: "r*"}, "-*"]',
    ],
)
@pytest.mark.parametrize("effect", ["deny", "ask", "allow"])
def test_a_pattern_in_a_plain_word_is_an_error_with_the_spelling_that_is_meant(write_bundle, effect, pattern):
    with pytest.raises(PolicyInvalid, match=r"is a plain word, which matches only itself\. Write \{glob: "):
        write_bundle(f"rules:\n- {{id: a, effect: {effect}, tool: workspace.exec, command: {{any_of: [{pattern}]}}}}\n")


def test_the_command_of_a_bracket_test_and_a_glob_of_a_literal_star_are_no_error(write_bundle):
    assert write_bundle(
        "rules:\n- {id: a, effect: deny, tool: workspace.exec, command: {any_of: [['[', ...], [rm, {glob: '[*]'}, ...]]}}\n"
    )


@pytest.mark.parametrize(
    "name",
    [
        "deny.YAML",
        "deny.Yml",
        "deny.json",
        "deny.yamll",
        "deny.yaml.txt",
        ".deny.yaml",
        "more/deny.yaml",
        "more/deep/deny.yml",
        "tests/deny.YAML",
        "tests/more/deny.yaml",
        "more/a.json",
    ],
)
def test_a_file_that_looks_like_rules_and_is_not_read_is_an_error_that_names_it(write_bundle, tmp_path, name):
    rules = "rules:\n- {id: a, effect: allow, tool: workspace.read}\n"
    write_bundle(rules)
    for harmless in (
        "README.md", ".git/config.yaml", "policy.yaml~", "tests/notes.txt", "policy.yaml.bak", ".policy.yaml.swp",
        ".#policy.yaml", "#policy.yaml#", "deny.yaml.disabled", "..data/policy.yaml",
    ):  # fmt: skip
        (tmp_path / harmless).parent.mkdir(exist_ok=True)
        (tmp_path / harmless).write_text("", encoding="utf-8")
    write_bundle(rules)
    (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
    (tmp_path / name).write_text("rules: []", encoding="utf-8")
    with pytest.raises(PolicyInvalid, match="This file is not read") as raised:
        write_bundle(rules)
    assert raised.value.file == str(tmp_path / name)


def test_all_files_that_would_not_be_read_are_named_at_once(write_bundle, tmp_path):
    for name in ("a.YAML", "b.json"):
        (tmp_path / name).write_text("rules: []", encoding="utf-8")
    with pytest.raises(PolicyInvalid) as raised:
        write_bundle("rules: []\n")
    assert [f"{tmp_path / name}:1:1" in raised.value.message for name in ("a.YAML", "b.json")] == [True, True]


def test_a_link_to_a_file_is_read_and_one_to_nothing_or_to_a_folder_with_rules_is_an_error(tmp_path):
    bundle, other = tmp_path / "bundle", tmp_path / "other"
    bundle.mkdir()
    other.mkdir()
    (other / "deny.yaml").write_text("version: 1\nrules: [{id: a, effect: deny}]\n")
    (bundle / "policy.yaml").symlink_to(other / "deny.yaml")
    (bundle / ".loop").symlink_to(bundle)
    (bundle / "loop").symlink_to(bundle)
    assert [rule.id for rule in load_bundle(bundle, TOOLS).rules] == ["a"]
    (bundle / "more").symlink_to(other)
    with pytest.raises(PolicyInvalid, match="This file is not read"):
        load_bundle(bundle, TOOLS)
    (bundle / "more").unlink()
    (bundle / "deny.yaml").symlink_to(other / "gone.yaml")
    with pytest.raises(PolicyInvalid, match=r"deny.yaml:1:1: The file cannot be read"):
        load_bundle(bundle, TOOLS)


def test_an_unknown_role_is_an_error_that_lists_the_roles(write_bundle):
    with pytest.raises(PolicyInvalid, match=r"policy.yaml:3:.*'approver'"):
        write_bundle("rules:\n- {id: a, effect: deny, roles: aprover}\n")
