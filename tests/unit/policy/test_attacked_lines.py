"""Lines of an attacker that looked harmless: bash reads each in another way than a rule for its visible words."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from codesdk.domain.decisions import Effect
from codesdk.policy.shell.command_analysis import analyze_line

from .conftest import decide_line

BUNDLE = """default: ask
enable: [workspace.exec]
rules:
- id: look
  effect: allow
  tool: workspace.exec
  command:
    any_of:
    - [[cd, ls, head, sort, rg, echo, cat, 'true', uniq, mypy, pytest], ...]
    - [git, [log, status], ...]
    - [sed, -n, ...]
    - [make, test, ...]
    - [xargs, [ls, mypy], ...]
    - [awk, ...]
    - [find, ...]
- {id: never, effect: deny, tool: workspace.exec, command: {any_of: [[[rm, sudo, dd], ...], [git, push, ...]]}}
"""
ESCAPED_BLANKS = [
    r"echo \ #; rm x",
    "echo a\\\t#; rm x",
    r"ls; \ #; evil",
    r"find . \ # -delete",
    r"echo \ # > .env",
    r"ls | xargs -d \  rm ls",
    r"awk -F \  'BEGIN{system(\"evil\")}' 1",
    r"uniq \  out",
]
VARIABLES = [
    "RANDOM='a[$(evil)]'; echo x",
    "SECONDS='a[$(evil)]'; echo x",
    "export RANDOM='a[`evil`]'; ls",
    "true {PATH}>/dev/null; ls",
    "echo {PATH}>&1",
    "x='a[$(evil)]'; true {b[x]}>/dev/null",
    "cd . {PATH}</dev/null",
]
SPELLINGS = [
    r"sort $'\x{2d}oout' a",
    "make test 'SHELL = ./evil'",
    "make test SHELL::=./evil",
    "make test '1!=touch pwned'",
    "make test '$(shell cmd)=x'",
    "echo evil >&\u00b2",
    "find -- @args -maxdepth 0 -print0 | xargs -0 mypy",
    "find -O3 @args -print0 | xargs -0 mypy",
    "find -- @args -exec mypy {} +",
    "sed -n 's/[]/]/p;s/w x\n#/e/' a",
    "sed -n 's/[[:alpha:]/]/p;s/w x\n#/e/' a",
    "awk 1 /inet/tcp/0/host/80",
    'awk \'{getline l < ("/in" "et/tcp/0/host/80")}\'',
]


@pytest.mark.parametrize("line", [*ESCAPED_BLANKS, *VARIABLES, *SPELLINGS])
def test_a_line_that_runs_or_writes_more_than_it_shows_is_not_allowed(write_bundle, line):
    assert decide_line(write_bundle(BUNDLE), line).effect is not Effect.ALLOW


@pytest.mark.parametrize("line", [r"echo \ #; rm x", "echo a\\\t#; rm x", r"echo \ \ #;git push", r"ls \ | rm x"])
def test_a_denied_command_behind_an_escaped_blank_is_denied(write_bundle, line):
    assert decide_line(write_bundle(BUNDLE), line).effect is Effect.DENY


def test_nor_is_it_under_a_bundle_that_allows_by_default(write_bundle):
    bundle = write_bundle(BUNDLE.replace("default: ask", "default: allow"))
    for line in (r"echo \ #; rm x", r"$'\x{72}m' x"):
        assert decide_line(bundle, line).effect is not Effect.ALLOW


@pytest.mark.parametrize(
    "line",
    [
        r"ls a\ b",
        r"echo ok \\ ; ls",
        r"echo 'a\' b; ls",
        r'echo "a\ b"; ls',
        "echo 'x' \\\n y",
        r"find . \( -name a \) -print",
        "echo x 2>&1",
        "make test",
        "awk -F: '{print $1}' a",
        "sed -n 's/[abc]/x/p' a",
    ],
)
def test_their_ordinary_neighbours_are_allowed(write_bundle, line):
    assert decide_line(write_bundle(BUNDLE), line).effect is Effect.ALLOW


MOVED = "cd a;cd b;cd c;"
VOUCHED = BUNDLE + (
    "- {id: tools, effect: allow, tool: workspace.exec, command: {any_of: [[pytest, ...], [ls, ...]], programs_in: '*/bin',"
    " write_beneath: build}}\n"
)


@pytest.mark.parametrize(
    "line",
    [
        MOVED + ".venv/bin/pytest;" * 180 + "ls " + " ".join(f"a{number}" for number in range(5000)),
        "ls " + "a" * 60_000,
        "git push -" + "q" * 60_000,
        "x+=" + "a" * 60_000 + "+",
        "grep -r a " + " ".join(map(str, range(10_000))),
        ("sed -n '/" + "[a" * 4000 + "' b;") * 7,
    ],
)
def test_lines_that_were_read_again_for_each_word_take_bounded_time(write_bundle, line):
    bundle = write_bundle(VOUCHED + "- {id: secrets, effect: ask, paths: {any_of: ['.env*', '*.pem', a/b]}}\n")
    began = time.process_time()
    decide_line(bundle, line)
    assert (
        time.process_time() - began < 3
    )  # up to a minute, when programs, words and brackets were compared with all others


@pytest.mark.parametrize("part", ["find . " + "-exec ls " * 3500, "env " + "-x y " * 8000, "nice " * 9000 + "ls"])
def test_commands_that_nest_the_same_words_take_bounded_time(write_bundle, part):
    bundle = write_bundle(BUNDLE + "- {id: secrets, effect: deny, paths: {any_of: ['.env*', '*.pem', a/b]}}\n")
    began = time.process_time()
    assert decide_line(bundle, part).effect is not Effect.ALLOW
    assert time.process_time() - began < 10  # minutes, without a limit on words


@pytest.mark.parametrize(
    "line",
    [
        "cp --target-directory=.venv/bin evil/pytest; .venv/bin/pytest",
        "cp -t.venv/bin evil/pytest; .venv/bin/pytest",
        "cp evil .ve*/bin/pytest; .venv/bin/pytest",
        "cp -r src/. .; .venv/bin/pytest",
        'cp evil "$x"; .venv/bin/pytest',
    ],
)
def test_a_vouched_program_that_the_line_may_replace_is_not_allowed(write_bundle, line):
    bundle = write_bundle(
        "default: ask\nenable: [workspace.exec]\nrules: [{id: r, effect: allow, tool: workspace.exec, command: "
        "{any_of: [[pytest, ...], [cp, ...], [ls, ...]], programs_in: .venv/bin, trust_arguments: true}}]\n"
    )
    assert decide_line(bundle, "ls . src/*; .venv/bin/pytest").effect is Effect.ALLOW
    assert decide_line(bundle, line).effect is not Effect.ALLOW


FATAL = """
from codesdk.policy.shell.command_analysis import analyze_line
for number in (*range(0x100, 0xD800, 0x200), *range(0xE000, 0x110000, 0x200)):
    analyze_line("{" + chr(number))
"""


def test_no_character_behind_a_brace_ends_the_process():
    """The scanner's library call reads a table at the character's number; what is beyond it differs by process."""
    ended = [subprocess.run([sys.executable, "-c", FATAL], check=False).returncode for _ in range(3)]
    assert ended == [0, 0, 0]


@pytest.mark.parametrize("name", ["é", "aé", "😀", "\uff41"])
def test_a_name_of_other_letters_is_a_command_and_no_assignment(name):
    views = analyze_line(f"{name}=1 ls")
    assert [[word.text for word in command.words] for command in views.seen] == [[f"{name}=1", "ls"]]
