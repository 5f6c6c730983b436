"""`paths` of rules, for tools and commands, and `arguments` of allow rules."""

from __future__ import annotations

import time

import pytest

from codesdk.domain.decisions import Classification, Effect
from codesdk.policy import Call, ExampleTool, PolicyInvalid, decide, lint, load_bundle
from codesdk.registry import Registry

from .conftest import REPOSITORY, TOOLS, WRITE, decide_line, subject

MOVE = ExampleTool(name="workspace.move", classification=Classification.WRITE)
REGISTRY = {tool.name: tool for tool in Registry.load(REPOSITORY / "tool-registry").tools()}
ALLOW, ASK, DENY = Effect.ALLOW, Effect.ASK, Effect.DENY
EVERYTHING = (
    "- {id: all, effect: allow, tool: workspace.exec, command: {any_of: [[{glob: '*'}, ...]], trust_arguments: true}}\n"
)


@pytest.fixture
def line_effect(write_bundle):
    """Decides a line under one rule on paths, next to a rule that allows every command that can be read."""

    def run(paths, line, effect="deny"):
        rule = f"- {{id: it, effect: {effect}, paths: {{{paths}}}}}\n"
        bundle = write_bundle(f"default: allow\nenable: [workspace.exec]\nrules:\n{EVERYTHING}{rule}")
        return decide_line(bundle, line).effect

    return run


@pytest.mark.parametrize(
    ("patterns", "line", "effect"),
    [
        ("[secret]", "cat secret", DENY),
        ("[secret]", "cat a/secret/b", DENY),
        ("[secret]", "cat secrets", ALLOW),
        ("[Config/Prod.yaml]", "cat app/config/PROD.YAML", DENY),
        ("[config/prod.yaml]", "cat prod.yaml", ALLOW),
        ("[config/prod.yaml]", "cd config && cat prod.yaml", DENY),
        ("[config/prod.yaml]", "git -C config show HEAD -- prod.yaml", DENY),
        ("[config/prod.yaml]", "rg KEY config", ASK),
        ("[config/prod.yaml]", "cp -r app/config /tmp/x", ASK),
        ("[config/prod.yaml]", "rg KEY", ALLOW),
        ("['**/.env']", "grep -r KEY src", ASK),
        ("['**/.env']", "rg KEY src", ALLOW),
        ("['**/*.pem']", "rg KEY src", ASK),
        ("[.env]", "grep -r KEY src", ALLOW),
        ("[/etc/passwd]", "cat /etc/passwd", DENY),
        ("[/etc/passwd]", "cat ../etc/passwd", DENY),
        ("[/etc/passwd]", "cat etc/passwd", ALLOW),
        ("['data/**/*.csv']", "cat data/a/b/c.csv", DENY),
        ("['data/**/*.csv']", "cat data/x.csv", DENY),
        ("['data/[ab]?.csv']", "cat data/a1.csv", DENY),
        ("['data/[ab]?.csv']", "cat data/c1.csv", ALLOW),
        ("[secret], except: [secret/public]", "cat secret/public", ALLOW),
        ("[secret], except: [secret/public]", "cat secret/public/../private", DENY),
        ("[secret], except: [secret/public]", "cat secret/public*", DENY),
    ],
)
def test_a_pattern_matches_the_paths_that_it_describes(line_effect, patterns, line, effect):
    assert line_effect(f"any_of: {patterns}", line) is effect


def test_a_command_and_a_path_must_both_be_in_the_line(write_bundle):
    bundle = write_bundle(
        f"default: allow\nenable: [workspace.exec]\nrules:\n{EVERYTHING}"
        "- {id: it, effect: deny, command: {any_of: [[cp, ...]]}, paths: {any_of: [.env]}}\n"
    )
    assert decide_line(bundle, "cp .env a").effect is DENY
    assert decide_line(bundle, "cp .e* a").effect is ASK
    assert decide_line(bundle, "cat .env").effect is ALLOW
    assert decide_line(bundle, "cp a b").effect is ALLOW


def test_an_ask_also_counts_what_may_match(line_effect):
    assert line_effect("any_of: [.env]", "cat .e*", effect="ask") is ASK


def test_an_allow_needs_every_path_of_the_call_and_never_matches_a_command(write_bundle):
    bundle = write_bundle(
        "default: ask\nenable: [workspace.exec]\nrules:\n- {id: it, effect: allow, paths: {any_of: [docs]}}\n"
    )
    for given, effect in (({"path": "docs/a", "target": "docs/b"}, ALLOW), ({"path": "docs/a", "target": "b"}, ASK)):
        assert decide(Call(name="workspace.move", input=given), MOVE, subject(), bundle).effect is effect
    assert decide_line(bundle, "cat docs/a").effect is ASK


def test_an_exception_of_a_deny_needs_every_path_too(write_bundle):
    bundle = write_bundle(
        "default: allow\nrules:\n- {id: it, effect: deny, tool: workspace.*, unless: {paths: {any_of: [docs]}}}\n"
    )
    for given, effect in (({"path": "docs/a", "content": "x"}, ALLOW), ({"path": "docs/../b", "content": "x"}, DENY)):
        assert decide(Call(name="workspace.write", input=given), WRITE, subject(), bundle).effect is effect


@pytest.mark.parametrize(
    ("line", "effect"),
    [
        ("cat src/a.py", ALLOW),
        ("cat -n src/a.py ./src/b/c.py", ALLOW),
        ("cat /workspace/src/a.py", ALLOW),
        ("cat src/*.py", ALLOW),
        ("timeout 5 cat src/a.py | cat", ALLOW),
        ("cat < src/a.py", ALLOW),
        ("cat src/../.env", ASK),
        ("cat SRC/a.py", ASK),
        ("cat src/a.py .env", ASK),
        ("cat -A src/a.py", ASK),
        ("cat src/.*", ASK),
        ("cat */a.py", ASK),
        ("cat src/$x", ASK),
        ("cat src/{a,../b}", ASK),
        ("cat ~/src/a.py", ASK),
        ("cat < .env", ASK),
        ("cd src && cat src/a.py", ASK),
        ("find src | xargs cat", ASK),
    ],
)
def test_an_allow_with_arguments_covers_only_those_that_it_lists(write_bundle, line, effect):
    bundle = write_bundle(
        "default: ask\nenable: [workspace.exec]\nrules:\n"
        "- {id: it, effect: allow, command: {any_of: [[[cat], ...]], arguments: ['src/**', -n]}}\n"
        "- {id: cd, effect: allow, command: {any_of: [[cd, ...], [find, ...]]}}\n"
    )
    assert decide_line(bundle, line).effect is effect
    given = {"command": line, "cwd": "/etc"}
    elsewhere = decide(Call(name="workspace.exec", input=given), REGISTRY["workspace.exec"], subject(), bundle)
    assert elsewhere.effect is ASK


@pytest.mark.parametrize(
    "line",
    [
        "git -C /etc log src/a",
        "git --git-dir=/x/.git --work-tree /x log src/a",
        r"find /etc -execdir cat src/passwd \;",
        "make -C /etc src/a",
    ],
)
def test_listed_arguments_are_those_of_the_workspace(write_bundle, line):
    bundle = write_bundle(
        "default: ask\nenable: [workspace.exec]\nrules:\n- {id: it, effect: allow, command: "
        "{any_of: [[git, log, ...], [cat, ...], [make, ...]], arguments: ['src/**', -n], trust_arguments: true}}\n"
        "- {id: find, effect: allow, command: {any_of: [[find, ...]]}}\n"
    )
    assert decide_line(bundle, "git log -n src/a").effect is ALLOW
    assert decide_line(bundle, line).effect is ASK


def test_words_that_cost_much_to_compare_lift_no_deny_and_make_no_exception():
    bundle = load_bundle(REPOSITORY / "policies" / "demo", TOOLS)
    costly = " ".join("*" + "*".join("pemkyx1"[(i + j) % 7] for j in range(28)) + f"*{i}*" for i in range(100))
    for path in (".env", "a/.docker/config.json", "x.pem"):
        assert decide_line(bundle, f"cat {path}").effect is DENY
        assert decide_line(bundle, f"cat {costly} {path}").effect is DENY
    assert decide_line(bundle, f"cat {costly} a.py").effect is ASK


def test_a_pattern_with_many_deep_parts_takes_bounded_time(write_bundle):
    bundle = write_bundle(
        "default: deny\nenable: [workspace.exec]\nrules:\n- {id: it, effect: deny, paths: {any_of: ['a/**/b/**/c/**/d/**/e']}}\n"
        "- {id: all, effect: allow, tool: workspace.exec, command: {any_of: [[cat, ...]]}}\n"
    )
    began = time.process_time()
    decide_line(bundle, " ".join(["cat", *["a/b/c/d/" * 30 + "f"] * 200]))
    assert time.process_time() - began < 10


@pytest.mark.parametrize(
    ("matcher", "says"),
    [
        ("paths: {any_of: ['~/.ssh']}", "without `~/` it matches in every directory"),
        ("paths: {any_of: [../x]}", "are resolved before a path is compared"),
        ("paths: {any_of: ['**']}", "matches every path"),
        ("paths: {any_of: [a//b]}", "a name is missing"),
        ("paths: {any_of: ['a[b']}", "a `[` has no `]`"),
        ("paths: {any_of: ['a**/b']}", "`**` stands alone"),
        ("paths: {any_of: ['a\\b']}", "there is no backslash"),
        ("paths: {any_of: []}", "at least 1"),
        ("command: {any_of: [[cat, ...]], arguments: [a]}", "belongs to an allow"),
        (
            "command: {any_of: [[cat]]}, unless: {command: {any_of: [[cat]], arguments: [a]}}",
            "end each pattern with `...`",
        ),
    ],
)
def test_a_pattern_that_means_nothing_is_an_error(write_bundle, matcher, says):
    with pytest.raises(PolicyInvalid, match=says.replace("*", r"\*").replace("[", r"\[").replace("(", r"\(")):
        write_bundle(f"rules:\n- {{id: it, effect: deny, {matcher}}}\n")


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        (
            "- {id: it, effect: deny, paths: {any_of: [.env, a], except: [.ENV]}}",
            "never matches `.env`: `except` has it",
        ),
        ("- {id: it, effect: deny, paths: {any_of: ['.env*', .env.local]}}", "needs no `.env.local`"),
        ("- {id: it, effect: deny, tool: http.fetch, paths: {any_of: [.env]}}", ""),
        (
            "- {id: it, effect: deny, paths: {any_of: [.env, a]}}\n- {id: other, effect: ask, paths: {any_of: [.env], except: [b]}}",
            "`other` never decides: `it` denies",
        ),
        (
            "- {id: it, effect: deny, paths: {any_of: [.env], except: [b]}}\n- {id: other, effect: ask, paths: {any_of: [.env]}}",
            "",
        ),
    ],
)
def test_lint_finds_patterns_without_effect_and_no_others(write_bundle, tmp_path, rules, says):
    write_bundle(f"rules:\n{rules}\n")
    found = [finding.message for finding in lint(tmp_path, TOOLS, tool_schemas=REGISTRY)]
    assert len(found) == bool(says), found
    assert all(says in message for message in found)
