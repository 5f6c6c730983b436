"""Kinds of shell lines, allowed and not, under a bundle with a few prefixes."""

from __future__ import annotations

import json
import time
import tracemalloc

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from codesdk.domain.decisions import Effect, PermissionMode
from codesdk.policy import Call, decide, load_bundle
from codesdk.policy.shell.command_analysis import analyze_line
from codesdk.policy.shell.parser import Script

from .conftest import EXEC, FIXTURES, TOOLS, cases, decide_line, subject

PREFIXES = load_bundle(FIXTURES / "prefixes", TOOLS)


def case_id(case):
    return case.get("id") or json.dumps(case["command"])[:60]


@pytest.mark.parametrize("case", [*cases("shell-cases.jsonl"), *cases("more-shell-cases.jsonl")], ids=case_id)
def test_a_shell_line_gets_the_effect_that_a_careful_reader_gives_it(case):
    effect = decide_line(PREFIXES, case["command"]).effect
    if case["expect"] == "not_allow":
        assert effect is not Effect.ALLOW
    else:
        assert effect == case["expect"]


@pytest.mark.parametrize(
    "case", cases("reported-bypasses.jsonl"), ids=lambda case: f"{case['source']}: {case['command'][:40]}"
)
def test_a_reported_bypass_does_not_pass_the_rule_that_it_passed_elsewhere(case, write_bundle):
    rule = {"id": "r", "effect": case["effect"], "tool": "workspace.exec", "command": {"any_of": [case["pattern"]]}}
    default = "ask" if case["effect"] == "allow" else "allow"
    bundle = write_bundle(
        json.dumps({"version": 1, "default": default, "enable": ["workspace.exec"], "rules": [rule]}), head=""
    )
    effect = decide_line(bundle, case["command"]).effect
    if case["effect"] == "allow":
        assert effect is not Effect.ALLOW
    else:
        assert effect == case["effect"]


# A file's name stands where a glob is, and whoever writes in the workspace makes files of any name: `--pre=sh`, `-exec`.
GLOBS = [
    "find . -exe? rm x", "find . -d*", "find -*", "rg --pr* x", "rg -[z] x", "sort --compress-pro* a", "sort --[o]utput a",
    "git log --outpu* x", "git diff --ext-dif?", "git log *", "sed -n -[i] p x", "sed [p]* x", "sed p* x", "awk p* x", "awk -[f] x y",
    "tar t? x", "tar tf x --to-com*", "printf -[v] x y", "printf * x", "test *", "test -[v] x", "man -[P] x y",
]  # fmt: skip


@pytest.mark.parametrize("line", GLOBS)
def test_a_pattern_that_a_files_name_may_make_an_option_of_is_not_allowed(line):
    assert decide_line(PREFIXES, line).effect is not Effect.ALLOW


def test_a_glob_of_files_may_be_two_where_the_second_is_written(write_bundle):
    bundle = write_bundle(
        "default: ask\nenable: [workspace.exec]\nrules: [{id: a, effect: allow, tool: workspace.exec, command: {any_of: [[uniq, ...]]}}]\n"
    )
    assert decide_line(bundle, "uniq a*").effect is Effect.ASK
    assert decide_line(bundle, "uniq -c a").effect is Effect.ALLOW


@pytest.mark.parametrize("line", ["ls *.py", "cat ./*", "find ./* -name x", "sort ./*.txt", "printf '%s' *", "echo -*", "git diff -- *.py"])  # fmt: skip
def test_a_pattern_that_is_no_option_stays_allowed(line):
    assert decide_line(PREFIXES, line).effect is Effect.ALLOW


@pytest.mark.parametrize(
    "text", ["$(rm x)", "`rm x`", '"$(rm x)"', '"a"$(id)', "$@", "a <<< $(id)", "<(id)", "$((a[$(id)]))", "${x@P}"]
)
@pytest.mark.parametrize(
    "line", ["cat <<< {}", "ls; cat <<<{}", "! cat a <<< {} b", "cat <<< {} | sort", "cat 0<<< {}"]
)
def test_a_here_string_that_expands_is_not_allowed(line, text):
    assert decide_line(PREFIXES, line.format(text)).effect is not Effect.ALLOW
    if "rm x" in text:
        assert decide_line(PREFIXES, line.format(text)).effect is Effect.DENY


def test_a_plain_here_string_is_allowed():
    assert decide_line(PREFIXES, "cat <<< 'a b' | sort").effect is Effect.ALLOW


def test_an_option_that_a_pattern_may_become_is_asked_about_where_it_would_be_denied(write_bundle):
    bundle = write_bundle(
        "default: allow\nenable: [workspace.exec]\nrules: [{id: a, effect: deny, tool: workspace.exec, command: {any_of: [[rm, ...]], any_flag: [-r]}}]\n"
    )
    assert decide_line(bundle, "rm -[r] x").effect is Effect.ASK
    assert decide_line(bundle, "rm -fr x").effect is Effect.DENY
    assert decide_line(bundle, "rm x").effect is Effect.ALLOW


def test_a_word_in_another_field_of_the_input_allows_nothing():
    # google-gemini/gemini-cli #19762: a prefix searched in the text of the whole input
    call = Call(name="workspace.exec", input={"command": "whoami", "stdin": "git status", "cwd": "git status"})
    assert decide(call, EXEC, subject(), PREFIXES).effect is Effect.ASK


@pytest.mark.parametrize(
    "argv",
    [
        ["rm", "x"],
        ["/bin/rm", "x"],
        ["sh", "-c", "rm x"],
        ["env", "rm"],
        ["xargs", "rm"],
        ["find", ".", "-exec", "rm", "{}", ";"],
    ],
)
def test_an_argument_list_is_looked_through_like_a_line(argv):
    assert decide(Call(name="workspace.exec", input={"argv": argv}), EXEC, subject(), PREFIXES).effect is Effect.DENY


def test_an_argument_list_needs_no_quoting_to_be_literal():
    call = Call(name="workspace.exec", input={"argv": ["echo", "$(rm x)", "a; rm x", "*"]})
    assert decide(call, EXEC, subject(), PREFIXES).effect is Effect.ALLOW


def test_a_script_on_standard_input_of_a_shell_is_read():
    call = Call(name="workspace.exec", input={"argv": ["sh"], "stdin": "ls; rm x"})
    assert decide(call, EXEC, subject(), PREFIXES).effect is Effect.DENY


@pytest.mark.parametrize(
    "given", [{"command": "ls", "argv": ["ls"]}, {"command": 5}, {"argv": []}, {"argv": ["ls", 1]}, {"command": ["ls"]}]
)
def test_a_command_of_an_odd_shape_is_asked_about_even_in_yolo(given):
    decision = decide(Call(name="workspace.exec", input=given), EXEC, subject(PermissionMode.YOLO), PREFIXES)
    assert decision.effect is Effect.ASK


@pytest.mark.parametrize(
    "line", ["$X y", "git log 'abc", "cat x | sh", "eval $X", "x\0y", "a" * 70_000, "ls;" * 300, "(" * 3000]
)
def test_a_line_that_rules_cannot_judge_is_asked_about_whatever_allows_it(line, write_bundle):
    bundle = write_bundle("enable: [workspace.exec]\nrules: [{id: all, effect: allow, tool: workspace.exec}]\n")
    assert decide_line(bundle, line, PermissionMode.YOLO).effect is Effect.ASK
    assert decide_line(bundle, "ls", PermissionMode.YOLO).effect is Effect.ALLOW


def test_a_deny_that_depends_on_an_unknown_argument_asks(write_bundle):
    bundle = write_bundle(
        "enable: [workspace.exec]\ndefault: allow\nrules: [{id: no-push, effect: deny, tool: workspace.exec, command: {any_of: [[git, push, ...]]}}]\n"
    )
    decision = decide_line(bundle, "git $SUB", PermissionMode.YOLO)
    assert (decision.effect, decision.rules) == (Effect.ASK, ("no-push",))
    assert decide_line(bundle, "git log $X").effect is Effect.ALLOW


def test_several_allow_rules_cover_one_line_together(write_bundle):
    bundle = write_bundle(
        "enable: [workspace.exec]\nrules:\n"
        "- {id: a, effect: allow, tool: workspace.exec, command: {any_of: [[cd, ...]]}}\n"
        "- {id: b, effect: allow, tool: workspace.exec, command: {any_of: [[pytest, ...]]}}\n"
    )
    decision = decide_line(bundle, "cd src && pytest -q")
    assert (decision.effect, set(decision.rules)) == (Effect.ALLOW, {"a", "b"})
    assert decide_line(bundle, "cd src && pytest -q && id").effect is Effect.DENY


def test_an_option_that_a_rule_spells_out_is_the_authors_decision(write_bundle):
    bundle = write_bundle(
        "enable: [workspace.exec]\nrules:\n"
        "- {id: a, effect: allow, tool: workspace.exec, command: {any_of: [[sed, -i, ...]]}}\n"
        "- {id: b, effect: allow, tool: workspace.exec, command: {any_of: [[rg, ...]], trust_arguments: true}}\n"
    )
    assert decide_line(bundle, "sed -i s/a/b/ x").effect is Effect.ALLOW
    assert decide_line(bundle, "sed -i -f x y").effect is Effect.DENY
    assert decide_line(bundle, "rg --pre x y").effect is Effect.ALLOW


def test_flags_are_found_in_every_spelling(write_bundle):
    bundle = write_bundle(
        "enable: [workspace.exec]\ndefault: allow\nrules: [{id: r, effect: deny, tool: workspace.exec, command: {any_of: [[git, push, ...]], any_flag: [-f, --force]}}]\n"
    )
    for line in (
        "git push -f",
        "git push origin -fu",
        "git push --force",
        "git push --forc origin",
        "git -C x push -uf",
    ):
        assert decide_line(bundle, line).effect is Effect.DENY, line
    for line in ("git push", "git push --force-with-lease", "git push origin feature-f"):
        assert decide_line(bundle, line).effect is Effect.ALLOW, line


def test_variables_in_front_are_allowed_by_name(write_bundle):
    bundle = write_bundle(
        "enable: [workspace.exec]\nrules: [{id: r, effect: allow, tool: workspace.exec, command: {any_of: [[pytest, ...]], env: [CI]}}]\n"
    )
    assert decide_line(bundle, "CI=1 pytest").effect is Effect.ALLOW
    assert decide_line(bundle, "CI=$(id) pytest").effect is Effect.DENY
    assert decide_line(bundle, "CI=1 LD_PRELOAD=x pytest").effect is Effect.DENY


WRAPPERS = ("env {}", "env A=1 {}", "timeout 5 {}", "nice -n 3 {}", "nohup {}", "xargs {}", "time {}", "exec {}", "command {}", "sudo -u a {}", "( {} )", "{{ {}; }}", "! {}", "ls && {}", "ls | {}", "ls; {}", "{} &", "if {}; then ls; fi", "echo $({})", 'echo "$({})"', "cat <({})", "A=$({}) ls", "f() {{ {}; }}; f")  # fmt: skip
SPELLINGS = ("rm", "/bin/rm", "r\\m", "'rm'", '"rm"', "r''m", "$'rm'", "$'\\x72m'", "\\rm", "r\\\nm")


@given(
    st.lists(st.sampled_from(WRAPPERS), max_size=4),
    st.sampled_from(SPELLINGS),
    st.sampled_from(("", " -rf /", " x", " $X", " 'a b'")),
)
@settings(max_examples=300, deadline=None)
def test_a_denied_command_is_denied_however_it_is_wrapped(wrappers, name, arguments):
    line = name + arguments
    for wrapper in wrappers:
        line = wrapper.format(line)
    effect = decide_line(PREFIXES, line).effect
    # A construct behind a wrapper (`env ( rm )`) is no bash; then it is enough that it is not allowed.
    assert effect is Effect.DENY if len(wrappers) <= 1 else effect is not Effect.ALLOW


@given(
    st.text(max_size=200)
    | st.lists(st.sampled_from(list("rm ls'\"\\$(){};|&<>`\n#=*?[]~!-/")), max_size=40).map("".join)
)
@settings(max_examples=500, deadline=None)
def test_every_text_gets_a_decision(line):
    decision = decide_line(PREFIXES, line)
    assert decision.reason
    assert (decision.approval is not None) is (decision.effect is Effect.ASK)


def test_long_scripts_leave_nothing_in_memory():
    long = "; ".join(f"echo {number}" for number in range(300))
    Script(long)
    tracemalloc.start()
    try:
        for number in range(200):
            Script(f"{long}; echo again {number}")
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 20 * len(long)


@pytest.mark.parametrize(
    "line",
    [
        "foo " + "-a " * 3000 + "x", "env " * 5000 + "ls", "timeout " + "-x " * 5000 + "1 ls", "echo " + "{" * 60_000, "echo " + "{," * 30_000,
        "r\\\n" * 20_000 + "m", "sed '" + "[" * 60_000 + "'", "awk '" + "/) " * 20_000 + "'", "echo " + "$(" * 10_000, "echo " + "`" * 60_000,
        "a=" * 20_000, "((" * 20_000, "[[ " * 10_000, "<<a " * 10_000, "if " * 20_000, "'\"" * 30_000, "case x in " * 5000, "${" * 20_000, "x|" * 30_000,
        "env " + "if ;" * 16_000, "tar [" + "s/a/b/;[" * 8000, "grep " + "s/a/b/;[[ " * 6000, "awk '/" + "[^a]" * 2000 + "'", "awk '/" + "[]a]" * 2000,
        "awk '" + "/a/" * 2700 + "'", "tar -xC " + "=a/" * 21_000,
    ],
    ids=lambda line: line[:12],
)  # fmt: skip
@pytest.mark.timeout(120)
def test_no_line_takes_long(line, write_bundle):
    bundle = write_bundle(
        "enable: [workspace.exec]\ndefault: allow\nrules:\n"
        "- {id: a, effect: deny, tool: workspace.exec, command: {any_of: [[foo, bar, baz, ...], [rm, ...]]}}\n"
        "- {id: b, effect: allow, tool: workspace.exec, command: {any_of: [[echo, ...], [sed, ...], [awk, ...], [tar, ...]]}}\n"
    )
    started = time.thread_time()
    decide_line(bundle, line)
    assert time.thread_time() - started < 5


@pytest.mark.parametrize(
    "line",
    [
        "source <(echo rm x)",
        ". $X",
        "hash -p /bin/rm ls; ls x",
        "mapfile -C 'rm x' < f",
        "compgen -W '$(rm x)'",
        "bash <(echo rm)",
        "bash -c '\"$@\"' _ rm x",
    ],
)
def test_a_rare_way_to_run_something_is_not_allowed_by_a_blanket_rule(line, write_bundle):
    bundle = write_bundle(
        "enable: [workspace.exec]\nrules:\n- {id: all, effect: allow, tool: workspace.exec}\n"
        "- {id: no-rm, effect: deny, tool: workspace.exec, command: {any_of: [[rm, ...]]}}\n"
    )
    assert decide_line(bundle, line, PermissionMode.YOLO).effect is not Effect.ALLOW


PLAIN_WORDS = st.sampled_from([
    *("ls", "git", "log", "-n", "--x=y", "a=b", "x+=1", "1", "--", "+", "^a", "%1", "a:b", "/bin/ls", "./a", "1,80p"),
    *("'q'", '"d d"', "'|'", '";"', "''", "'a\nb'", "'ls && rm x'", "bash", "-c", "eval", "sudo", "env", "cd", "read"),
    *("break", "exit", "export", "declare", "unset", "if", "then", "fi", "do", "done", "time", "coproc", "find", "-exec"),
    *("-print0", "xargs", "-0", "rm", "sed", "awk", "nice", "timeout", "exec", "command", "source", "set", "test"),
])  # fmt: skip
CONNECTORS = st.sampled_from([" ", " ", " ", "  ", " && ", " || ", " | ", "; ", ";", "|", "&&"])


@given(st.lists(st.tuples(CONNECTORS, PLAIN_WORDS), min_size=1, max_size=8))
@settings(max_examples=2000, deadline=None)
def test_a_plain_line_is_read_without_the_parser_as_with_it(parts):
    line = "".join(connector + word for connector, word in parts).lstrip(" ;|&")
    assume(Script(line).plain)
    assert Script(line + "\n").plain == ()  # a newline needs the parser
    assert facts(line) == facts(line + "\n")


def facts(line):
    views = analyze_line(line)
    allowed = (
        None
        if views.allow_view is None
        else [(each.words, each.assignments, each.context) for each in views.allow_view]
    )
    return allowed, [(each.words, each.assignments) for each in views.seen], views.refusal, views.opaque


@pytest.mark.parametrize(
    "line", ["a=b", "ls; a=b", "x+=1 ls", "time ls", "if ls; then ls; fi", "find . -print0 | xargs -0 ls"]
)
def test_a_line_of_plain_words_that_is_no_list_of_commands_needs_the_parser(line):
    assert Script(line).plain == ()


def test_a_list_of_plain_and_quoted_words_is_split_at_its_connectors_only():
    commands = Script("cd a && git log 'x | y' | head -5; ls \"a;b\" || pwd").plain
    assert [[word.text for word in command.words] for command in commands] == [
        ["cd", "a"], ["git", "log", "x | y"], ["head", "-5"], ["ls", "a;b"], ["pwd"],
    ]  # fmt: skip
