"""Diffs of previews: as `diff -u` writes them, with escaped names, bounded for any texts."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codesdk.domain.work_budget import WorkBudget
from codesdk.toolcalls.previews import unified_diff as module
from codesdk.tools.diff_parser import parse_diff
from codesdk.tools.git_paths import quote_path, unquote_path
from codesdk.tools.hunks import MAX_WORK, apply_hunks
from codesdk.tools.text_lines import split_lines


def unified_diff(path, before, after):
    return module.unified_diff(path, before, after, WorkBudget(module.MAX_WORK))


LINES = st.lists(st.sampled_from(["a", "b", "c", "", " x", "-y", "+z", "\\ w", "@@ -1 +1 @@"]), max_size=14)
TEXTS = st.builds(lambda lines, end: "\n".join(lines) + end, LINES, st.sampled_from(["", "\n"]))


@settings(max_examples=150, deadline=None)
@given(TEXTS, TEXTS)
def test_what_a_diff_says_makes_the_one_text_of_the_other(before, after):
    told = unified_diff("a.txt", before, after)
    assert bool(told) is (before != after)
    if told:
        (patch,) = parse_diff(told)
        assert apply_hunks(patch.hunks, before, "a.txt", WorkBudget(MAX_WORK)) == after


def test_it_is_what_diff_writes(tmp_path):
    before = "".join(f"line {number}\n" for number in range(40))
    after = before.replace("line 7\n", "line seven\n").replace("line 30\n", "").replace("line 39\n", "line 39")
    (tmp_path / "a").write_text(before)
    (tmp_path / "b").write_text(after)
    run = subprocess.run(["diff", "-u", "a", "b"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert unified_diff("f", before, after).splitlines()[2:] == run.stdout.splitlines()[2:]


def test_a_file_that_comes_or_goes_is_compared_with_nothing():
    assert unified_diff("new.txt", None, "one\n").splitlines() == [
        "--- /dev/null",
        "+++ b/new.txt",
        "@@ -0,0 +1,1 @@",
        "+one",
    ]
    assert unified_diff("old.txt", "one\n", None).splitlines()[:2] == ["--- a/old.txt", "+++ /dev/null"]


@pytest.mark.parametrize("name", ["a\n+++ b/other", 'q"uo\\te', "\x1b[2J", "\u202egpj.exe", " blank ", "ä\tb"])
def test_a_hostile_name_stands_on_its_own_line_in_quotes(name):
    head = unified_diff(name, "x\n", "y\n").splitlines()
    assert len(head) == 5
    assert head[0].startswith('--- "')
    assert all(character.isprintable() for character in head[0])
    assert unquote_path(quote_path(name)) == name


HARD = [
    ("x\n" * 40_000, "y\n" * 40_000),
    ("".join(f"{n % 7}\n" for n in range(499)), "".join(f"{n % 5}\n" for n in range(499))),
    ("x\n" * 450, "".join(f"{n}\nx\n" for n in range(250))),
    ("x\n" * 1256, "y\n" + "x\nz\n" * 99),
    ("a\nb\n" * 60_000, "b\na\n" * 60_000 + "c\n"),
]


@pytest.mark.parametrize(("before", "after"), HARD)
def test_texts_that_are_hard_to_compare_take_no_more_than_the_budget(before, after):
    budget = WorkBudget(module.MAX_WORK)
    assert module.unified_diff("f", before, after, budget)
    assert budget.left > -max(before.count("\n"), after.count("\n"))


@pytest.mark.parametrize(("before", "after"), HARD[1:4])
def test_once_the_budget_is_spent_all_lines_are_taken_out_and_put_in(before, after):
    told = module.unified_diff("f", before, after, WorkBudget(5))
    (patch,) = parse_diff(told)
    assert apply_hunks(patch.hunks, before, "f", WorkBudget(MAX_WORK)) == after
    assert told.count("\n ") <= 2 * module.CONTEXT


@settings(max_examples=100, deadline=None)
@given(TEXTS, TEXTS)
def test_a_diff_keeps_as_many_lines_as_possible(before, after):
    if before == after:
        return
    old, new = split_lines(before), split_lines(after)
    most = [[0] * (len(new) + 1) for _ in range(len(old) + 1)]
    for i, line in enumerate(old):
        for j, other in enumerate(new):
            most[i + 1][j + 1] = most[i][j] + 1 if line == other else max(most[i][j + 1], most[i + 1][j])
    told = unified_diff("f", before, after)
    assert told.count("\n-") == len(old) - most[-1][-1]
