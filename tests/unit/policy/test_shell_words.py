"""Unquoting, and the parsers of sed scripts and awk programs."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codesdk.policy.shell import awk, sed
from codesdk.policy.shell.words import unquote

PRINTABLE = st.text(st.characters(min_codepoint=32, max_codepoint=126))


@given(PRINTABLE)
def test_a_quoted_word_gives_back_its_text(text):
    word = unquote(shlex.quote(text))
    assert (word.text, word.literal, word.glob) == (text, True, False)


@given(st.lists(PRINTABLE, min_size=1))
def test_joined_quotes_are_one_word(parts):
    word = unquote("".join("'" + part.replace("'", "") + "'" for part in parts))
    assert word.literal
    assert word.text == "".join(part.replace("'", "") for part in parts)


@given(st.text())
def test_every_text_is_read(text):
    assert unquote(text).dynamic in (True, False)


@pytest.mark.parametrize(
    "raw",
    [
        "$x",
        "a$x",
        '"$x"',
        '"a ${x}"',
        "`x`",
        '"`x`"',
        "$(x)",
        "<(x)",
        "{a,b}",
        "{1..3}",
        "$[1]",
        "$((1))",
        "$'\\0'",
        "$'\\xff'",
    ],
)
def test_what_only_a_running_shell_knows_is_dynamic(raw):
    assert unquote(raw).dynamic


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("a\\ b", "a b"),
        ("$'a\\tb'", "a\tb"),
        ('"a\\$x"', "a$x"),
        ('"a\\b"', "a\\b"),
        ("a$", "a$"),
        ("HEAD@{1}", "HEAD@{1}"),
        ("a\\\nb", "ab"),
        ("$'\\x41\\u0042\\103'", "ABC"),
        ('$"x"', "x"),
        ("{}", "{}"),
    ],
)
def test_quoting_is_taken_off_as_bash_does(raw, text):
    word = unquote(raw)
    assert (word.text, word.literal) == (text, True)


@pytest.mark.parametrize("raw", ["a b", "a;b", "a|b", "'a", '"a', "a\\", "#a", "a\nb"])
def test_what_is_no_single_word_is_broken(raw):
    assert unquote(raw).broken


@given(st.text(st.sampled_from(list("sywWerRaic/|\\[]{};\n ,!$0123pgdn"))))
def test_a_sed_script_with_no_letter_of_danger_or_not_is_always_answered(script):
    answer = sed.edits_only(script)
    if not set(script) & set("weW"):
        return
    assert answer in (True, False)


@pytest.mark.parametrize(
    "script",
    [
        "w x",
        "1w x",
        "/a/w x",
        "s/a/b/w x",
        "e id",
        "1e",
        "s/a/b/e",
        "s/a/b/ge",
        "p;w x",
        "p\nw x",
        "{w x\n}",
        "\\,a,w x",
        "$!w x",
        "s,a,b,w x",
        "y/a/b/;w x",
        "0~3w x",
        "/a/I,+2w x",
        "a\\\nt\nw x",
        "r f\nw x",
        ":a\nw x",
        "b a;w x",
        "F;W x",
    ],
)
def test_a_sed_script_that_writes_or_runs_is_seen(script):
    assert not sed.edits_only(script)


@pytest.mark.parametrize(
    "program",
    [
        'BEGIN{system("id")}',
        'BEGIN{for(;;) print "x" > "f"}',
        'BEGIN{print "x",\n "y" > "f"}',
        'BEGIN{print "x" \\\n > "f"}',
        'BEGIN{if(0) 1; else /"/; system("id"); x = "a"}',
        'BEGIN{do /"/; while(0); system("id"); x = "a"}',
        'BEGIN{x = 4 \\\n/ system("id") / 2}',
        '/[/]/ ; BEGIN{system("id")} ; /]/',
        '/[[:alpha:]/"]/ {system("id")} {x = "a"}',
        'BEGIN{getline x < "/inet/tcp/0/h/1"}',
        '{print > "x"}',
        '{print $1, $2 >> "x"}',
        '{print | "sh"}',
        '{"id" | getline}',
        "@load",
        '{printf("a") > "x"}',
        'x++ / system("id") / 2',
        '{ if (1) /"/ ; system("id") ; /"/ }',
        '"a',
        "/a",
        '/[/]"/ { system("id") } /"/',
        '{ print "\\" > x" > "f" }',
        'function f() { return /"/ ; system("id") } { /"/ }',
    ],
)
def test_an_awk_program_that_writes_or_runs_is_seen(program):
    assert not awk.is_read_only(program)
