"""Where commands are written in a line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codesdk.policy.shell.command_layout import LineLayout


def marked(line, *command, indexes=None):
    """What is written where these words of the command are."""
    wanted = range(len(command)) if indexes is None else indexes
    return [line[start:end] for start, end in LineLayout(line).find(command, wanted)]


@pytest.mark.parametrize(
    ("line", "command", "expected"),
    [
        ("git push --force", ("git", "push", "--force"), ["git", "push", "--force"]),
        ("x=é rm 'a b'; ls", ("rm", "a b"), ["rm", "'a b'"]),
        ("sudo timeout 5 rm -rf x", ("rm", "-rf", "x"), ["rm", "-rf", "x"]),
        ("bash -c 'cd x && rm y'", ("rm", "y"), ["rm", "y"]),
        ("""bash -lc "sh -c 'rm a'" """, ("rm", "a"), ["rm", "a"]),
        ("echo $(rm x)", ("rm", "x"), ["rm", "x"]),
        ("for i in a b; do rm x; done", ("rm", "x"), ["rm", "x"]),
        # the quotes hide where it is: the whole word
        (r'sh -c "echo \"a\" && rm z"', ("rm", "z"), [r'"echo \"a\" && rm z"']),
    ],
)
def test_a_command_is_found_where_it_is_written(line, command, expected):
    assert marked(line, *command) == expected


def test_a_word_that_is_there_twice_is_marked_only_where_its_command_is():
    line = "git commit -m 'git push --force' && echo --force && git push --force"
    (span,) = LineLayout(line).find(("git", "push", "--force"), (2,))
    assert line[span.start : span.end] == "--force"
    assert span.start == line.rindex("--force")


def test_a_command_that_is_there_twice_is_marked_twice():
    assert marked("rm x; ls; rm x", "rm", "x", indexes=(0,)) == ["rm", "rm"]


def test_a_command_that_is_not_there_is_not_found():
    assert marked("rm x", "rm", "y") == []


@pytest.mark.parametrize(
    ("line", "written"),
    [
        ("echo a > out.txt", [(False, "out.txt")]),
        ("echo a >> log 2>/dev/null", [(True, "log")]),
        ("bash -c 'ls > x'", [(False, "x")]),
        ("sort < in", []),
        ("ls 2>&1", []),
    ],
)
def test_redirections_that_write_files_are_found(line, written):
    assert [(one.appends, one.target) for one in LineLayout(line).redirections] == written


@given(st.text(alphabet="ab 'git\"rm$()`;|&>\\\nü-c", max_size=40))
def test_every_place_is_within_the_line(line):
    for placed in LineLayout(line).commands:
        for span in placed.spans:
            assert span is None or 0 <= span.start <= span.end <= len(line)
