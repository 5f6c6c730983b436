"""Allow rules look through transparent wrappers, brackets, values of variables and plain compounds.

`policies/default/tests` has the lines that stay allowed, and similar ones that are not.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codesdk.domain.decisions import Effect, PermissionMode
from codesdk.policy import load_bundle
from codesdk.policy.shell.allow_wrappers import wrapped_commands
from codesdk.policy.shell.command_analysis import analyze_line
from codesdk.policy.shell.commands import SimpleCommand
from codesdk.policy.shell.words import UNKNOWN, Word, unquote

from .conftest import FIXTURES, TOOLS, decide_line

PREFIXES = load_bundle(FIXTURES / "prefixes", TOOLS)


def inside(line):
    return [
        [word.text for word in inner.words]
        for inner in wrapped_commands(SimpleCommand(tuple(map(unquote, line.split(" ")))))
    ]


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("timeout 5 ls -la", "ls -la"),
        ("timeout -s KILL -k 5s --foreground 1.5m ls", "ls"),
        ("timeout -sKILL -- 5 ls", "ls"),
        ("nice ls", "ls"),
        ("nice -n -5 ls", "ls"),
        ("nice -19 ls", "ls"),
        ("stdbuf -oL -e 0 ls", "ls"),
        ("env ls", "ls"),
        ("command ls", "ls"),
        ("time -p ls", "ls"),
    ],
)
def test_a_transparent_wrapper_is_the_command_in_it(line, command):
    assert inside(line) == [command.split(" ")]


def test_wrappers_in_wrappers_are_each_looked_through():
    assert inside("timeout 5 nice env ls a") == [["nice", "env", "ls", "a"], ["env", "ls", "a"], ["ls", "a"]]
    assert len(inside("nice " * 50 + "ls")) == 8


@pytest.mark.parametrize("line", ["/usr/bin/timeout 5 ls", "timeout ls", "timeout 5", "nice -n ls", "env A=1 ls", "env -i ls", "xargs", "xargs -a f ls", "nohup ls", "sudo ls", "ls", "timeout 5 -x", "timeout '' ls", "nice ''"])  # fmt: skip
def test_what_is_not_known_to_the_letter_is_a_command_like_any_other(line):
    assert inside(line) in ([], [["''"]])


def test_what_xargs_adds_is_unknown_and_may_be_an_option():
    (inner,) = wrapped_commands(
        SimpleCommand(tuple(map(Word, ("xargs", "-0", "-n", "1", "-I", "{}", "grep", "x{}", "y"))))
    )
    assert [word.literal for word in inner.words] == [True, False, True, False]
    assert inner.words[-1].may_be_option
    assert not list(wrapped_commands(SimpleCommand((Word("xargs"), Word("-I"), Word("ls"), Word("ls")))))
    assert not list(wrapped_commands(SimpleCommand((Word("xargs"), UNKNOWN, Word("ls")))))


def test_what_xargs_puts_in_the_place_of_its_only_string_is_one_argument():
    (inner,) = wrapped_commands(SimpleCommand(tuple(map(Word, ("xargs", "-I", "{}", "sed", "-n", "src/{}", "{}")))))
    assert [(word.text, word.may_be_option) for word in inner.words[2:]] == [("src/", False), ("", True)]


@given(
    st.lists(st.sampled_from(["timeout", "5", "nice", "-n", "xargs", "-I", "{}", "env", "--", "-0", "rm", "ls", "*", "$X", '"$X"', "time", "-k"]), max_size=7),
)  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_what_an_allow_rule_looks_through_is_seen_by_rules_that_deny(words):
    views = analyze_line(" ".join(words))
    seen = {command.name for command in views.seen}
    for command in views.allow_view or ():
        for inner in wrapped_commands(command):
            assert views.opaque or inner.name in seen


@pytest.mark.parametrize(
    "line",
    [
        "xargs -I * ls rm",
        "xargs -? ls rm",
        "xargs $X ls",
        "env -S ls $X",
        "env -S timeout 5 ${X:-rm}",
        "nice $X ls",
        "timeout $X ls",
        "sudo -u * ls",
    ],
)
def test_a_wrapper_whose_command_may_be_another_word_is_never_allowed(line, write_bundle):
    bundle = write_bundle("enable: [workspace.exec]\nrules: [{id: all, effect: allow, tool: workspace.exec}]\n")
    assert decide_line(bundle, line, PermissionMode.YOLO).effect is not Effect.ALLOW


@pytest.mark.parametrize(
    "line", ["xargs --replace rm x", "xargs --max-lines rm", "xargs --eof rm", "xargs --replace=a rm"]
)
def test_an_option_whose_value_stands_behind_an_equals_sign_only_hides_no_command(line):
    assert decide_line(PREFIXES, line).effect is Effect.DENY


@pytest.mark.parametrize(
    "line", ["ls $X", 'ls "$X"', "ls ${X}", 'cat "a/$X.txt"', "echo $? $$ $#", "timeout 5 ls $X", "echo $X*"]
)
def test_a_variables_value_is_an_argument_like_any_other(line):
    assert decide_line(PREFIXES, line).effect is Effect.ALLOW


@pytest.mark.parametrize(
    "line",
    [
        "git log $X",
        "rg $X",
        "sort a$X",
        'sort "$X"',
        "find $X",
        "sed $X",
        "awk $X",
        "tar t $X",
        'test "$X" "$Y"',
        "printf $X",
        "git --no-pager$X log",
        "$X",
        "ls ${X:=a}",
        "ls ${X@P}",
        "ls ${!X}",
        "ls $@",
        "ls $((X))",
        "ls ${X[0]}",
        "X=1 ls",
        "cat < $X",
        "ls > $X",
        "cat <<< $@",
    ],
)
def test_a_value_that_may_become_an_option_or_more_is_asked_about(line):
    assert decide_line(PREFIXES, line).effect is not Effect.ALLOW


def test_a_single_word_that_cannot_be_an_option_is_a_file():
    assert decide_line(PREFIXES, 'sort "src/$X"').effect is Effect.ALLOW
    assert decide_line(PREFIXES, 'git -C "$X" log').effect is Effect.ALLOW
    assert decide_line(PREFIXES, "git -C $X log").effect is not Effect.ALLOW


def test_a_value_never_stands_for_a_word_that_a_rule_spells_out(write_bundle):
    bundle = write_bundle(
        "default: ask\nenable: [workspace.exec]\nrules:\n"
        "- {id: a, effect: allow, tool: workspace.exec, command: {any_of: [[foo, a, ...], [bar, {glob: '*'}]]}}\n"
        "- {id: b, effect: allow, tool: workspace.exec, command: {any_of: [[qux, ...]], forbid_flags: [-x]}}\n"
    )
    assert decide_line(bundle, "foo a $X").effect is Effect.ALLOW
    for line in ("foo $X", "foo a$X b", 'foo "a$X"', "bar $X", "qux $X"):
        assert decide_line(bundle, line).effect is Effect.ASK, line


@pytest.mark.parametrize(
    "line",
    [
        "if test -e a; then ls; elif true; then cat a; else echo; fi",
        "for x in a *.py; do cat $x; done",
        "( cd a && ls ) | sort",
        "{ ls\n}",
    ],
)
def test_a_compound_of_allowed_commands_is_allowed(line):
    assert decide_line(PREFIXES, line).effect is Effect.ALLOW
    assert decide_line(PREFIXES, line.replace("ls", "make").replace("cat", "make")).effect is Effect.ASK
    assert decide_line(PREFIXES, line.replace("ls", "rm x").replace("cat", "rm x")).effect is Effect.DENY
