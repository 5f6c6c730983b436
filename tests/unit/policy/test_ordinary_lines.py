"""Lines of a coding agent's day under a team's bundle: few ask, and nothing that is next to them passes.

`ordinary-lines.jsonl` holds the lines, `ordinary-neighbours.jsonl` lines of the same constructs that must not be allowed:
`evil` and `rm` stand for any command that no rule allows.
"""

from __future__ import annotations

import json
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codesdk.domain.decisions import Effect
from codesdk.policy import Call, PolicyInvalid, decide, load_bundle
from codesdk.policy.shell.allow_wrappers import wrapped_commands
from codesdk.policy.shell.command_analysis import analyze_line

from .conftest import EXEC, FIXTURES, TOOLS, cases, decide_line, subject

TEAM = load_bundle(FIXTURES / "team", TOOLS)
PREFIXES = load_bundle(FIXTURES / "prefixes", TOOLS)
MOST_ASKED = 0.1
"""Share of the ordinary lines that may ask; most of them run something that no rule names, such as `pip install`."""


def test_at_most_one_in_ten_ordinary_lines_asks():
    lines = [case["command"] for case in cases("ordinary-lines.jsonl")]
    asked = [line for line in lines if decide_line(TEAM, line).effect is not Effect.ALLOW]
    share = f"{len(asked)} of {len(lines)} ordinary lines ask ({len(asked) / len(lines):.1%}):"
    sys.stdout.write("\n  ".join([share, *asked]) + "\n")
    assert len(lines) >= 150
    assert len(asked) <= MOST_ASKED * len(lines), asked


@pytest.mark.parametrize("case", cases("ordinary-neighbours.jsonl"), ids=lambda case: json.dumps(case["command"])[:60])
def test_a_neighbour_of_an_ordinary_line_is_not_allowed(case):
    assert decide_line(TEAM, case["command"]).effect is not Effect.ALLOW


HIDERS = (
    "echo $({})", 'echo "$({})"', "echo `{}`", "echo a$({})b", 'ls "src/$({})"', "cat <({})", "ls 2> >({})", "cat < <({})",
    "x=$({}); ls", "X=$({}) && ls", "export CI=$({}); ls", "CI=$({}) pytest", "for f in $({}); do ls; done",
    "for f in a; do {}; done", "for i in {{1..3}}; do {}; done", "while read -r x; do {}; done < a", "while {}; do ls; done",
    "until ls; do {}; done", "ls | while IFS= read -r x; do {}; done", '[ -n "$({})" ]', 'test "$({})" = x', "ls {{a,b}} && {}",
    "cat <<< $({})", "{} &", "ls & {}", "pytest & {}", "( {} )", "{{ {}; }}", "if {}; then ls; fi", "! {}", "ls && {}", "ls | {}",
    "f=$(ls); {}", "cd src && {}", "cat > src/a <<'EOF' && {}\nx\nEOF", "cat <<EOF\n$({})\nEOF", "echo ${{x:-$({})}}", "echo $((1 + $({})))",
    "find . -exec ls {{}} \\; ; {}", "ls | xargs -0 ls; {}", "while read x; do break; {}; done", "x=1; {}", "exit 0; {}",
)  # fmt: skip
BEHIND = (
    "find . -exec {} \\;",
    "find src -exec ls {{}} + -exec {} {{}} \\;",
    "ls | xargs {}",
    "find . -print0 | xargs -0 {}",
    "timeout 5 {}",
)
NOT_ALLOWED = (
    "evil",
    "rm -rf x",
    "./pytest",
    "git push",
    "sh -c ls",
    "$x",
    "sed -n 'w x'",
    "find . -delete",
    "sort -o x y",
    "PATH=. ls",
)


@given(st.lists(st.sampled_from(HIDERS), max_size=4), st.sampled_from(NOT_ALLOWED), st.sampled_from(("{}", *BEHIND)))
@settings(max_examples=400, deadline=None)
def test_a_command_that_is_not_allowed_is_never_allowed_inside_the_constructs(hiders, command, runner):
    line = runner.format(command)
    for hider in hiders:
        line = hider.format(line)
    assert decide_line(TEAM, line).effect is not Effect.ALLOW, line


@given(
    st.lists(st.sampled_from([hider for hider in HIDERS if "<<" not in hider]), max_size=3),
    st.sampled_from(("ls a", "git log", "sort x")),
)
@settings(max_examples=200, deadline=None)
def test_what_the_allow_view_has_inside_the_constructs_the_ask_deny_view_has_too(hiders, line):
    for hider in hiders:
        line = hider.format(line)
    views = analyze_line(line)
    seen = {command.name for command in views.seen}
    for command in views.allow_view or ():
        assert {command.name, *(inner.name for inner in wrapped_commands(command))} <= seen


@pytest.mark.parametrize(
    "hider", [hider for hider in HIDERS if "${" not in hider and "$((" not in hider and "<<EOF" not in hider]
)
def test_an_allowed_command_is_allowed_inside_the_constructs(hider):
    if hider in ("{} &", "ls & {}", "export CI=$({}); ls"):  # the rules on `ls` and `git` permit neither
        assert decide_line(TEAM, hider.format("pytest")).effect is (Effect.ASK if hider == "ls & {}" else Effect.ALLOW)
    else:
        assert decide_line(TEAM, hider.format("git log")).effect is Effect.ALLOW


RULE = "default: ask\nenable: [workspace.exec]\nrules: [{id: r, effect: allow, tool: workspace.exec, command: "


def test_a_program_by_path_is_another_program_unless_an_author_vouches_for_its_folder(write_bundle):
    plain = write_bundle(RULE + "{any_of: [[pytest, ...], [cd, ...]]}}]\n")
    decision = decide_line(plain, ".venv/bin/pytest -q")
    assert decision.effect is Effect.ASK
    assert "the rule `r` names `pytest`, not the program at `.venv/bin/pytest`" in decision.reason
    vouched = write_bundle(RULE + "{any_of: [[pytest, ...], [cd, ...]], programs_in: .venv/bin}}]\n")
    for line in (
        ".venv/bin/pytest -q",
        "./.venv/bin/pytest",
        "/workspace/.venv/bin/pytest x",
        "timeout 5 .venv/bin/pytest",
    ):
        assert decide_line(vouched, line).effect is Effect.ALLOW, line
    for line in (
        "cd a && .venv/bin/pytest",
        "a/.venv/bin/pytest",
        ".venv/bin/x/pytest",
        ".venv/bin/other",
        "../.venv/bin/pytest",
    ):
        assert decide_line(vouched, line).effect is Effect.ASK, line


@pytest.mark.parametrize(
    "line",
    [
        r"find sub -execdir .venv/bin/pytest {} \;",
        r"find sub -name x -execdir .venv/bin/pytest -q \;",
        "env -C sub .venv/bin/pytest",
        "env --chdir=sub .venv/bin/pytest",
        "pytest -q && find sub -execdir .venv/bin/pytest {} +",
    ],
)
def test_a_vouched_program_is_no_other_one_of_the_same_path_elsewhere(write_bundle, line):
    bundle = write_bundle(RULE + "{any_of: [[pytest, ...], [find, ...]], programs_in: .venv/bin}}]\n")
    assert decide_line(bundle, ".venv/bin/pytest -q").effect is Effect.ALLOW
    assert decide_line(bundle, line).effect is not Effect.ALLOW


def test_where_a_call_runs_decides_which_program_a_path_names(write_bundle):
    bundle = write_bundle(RULE + "{any_of: [[pytest, ...]], programs_in: [api/.venv/bin]}}]\n")
    for given_input, effect in (
        ({"command": ".venv/bin/pytest", "cwd": "api"}, Effect.ALLOW),
        ({"argv": [".venv/bin/pytest"], "cwd": "api"}, Effect.ALLOW),
        ({"argv": ["api/.venv/bin/pytest"]}, Effect.ALLOW),
        ({"command": ".venv/bin/pytest", "cwd": "web"}, Effect.ASK),
        ({"command": "api/.venv/bin/pytest", "cwd": "../x"}, Effect.ASK),
        ({"command": "api/.venv/bin/pytest", "cwd": 5}, Effect.ASK),
    ):
        call = Call(name="workspace.exec", input=given_input)
        assert decide(call, EXEC, subject(), bundle).effect is effect, given_input


def test_output_goes_into_files_only_where_the_rule_on_the_command_says_so(write_bundle):
    closed = write_bundle(RULE + "{any_of: [[cat, ...], [cd, ...]]}}]\n")
    decision = decide_line(closed, "cat > src/a <<'EOF'\nx\nEOF")
    assert decision.effect is Effect.ASK
    assert "the rule `r` does not allow writing its output to `src/a`" in decision.reason
    bundle = write_bundle(RULE + "{any_of: [[cat, ...], [cd, ...]], write_beneath: [src]}}]\n")
    for line in (
        "cat a > src/b",
        "cat a >> ./src/b",
        "cat a &> src/x/b",
        "cat <<E > /workspace/src/b\n$HOME\nE",
        "{ cat a; cat b; } > src/c",
    ):
        assert decide_line(bundle, line).effect is Effect.ALLOW, line
    for line in (
        "cat a > b",
        "cat a > srcb",
        "cat a > src/../b",
        "cat a > src/.git/x",
        "cd x && cat a > src/b",
        "cat a > src/b 2> err",
    ):
        assert decide_line(bundle, line).effect is Effect.ASK, line


def test_a_command_runs_in_the_background_only_if_its_rule_says_so(write_bundle):
    closed = write_bundle(RULE + "{any_of: [[make, ...], [ls, ...]]}}]\n")
    decision = decide_line(closed, "make serve & ls")
    assert decision.effect is Effect.ASK
    assert "`make serve`: the rule `r` does not allow running it in the background" in decision.reason
    bundle = write_bundle(RULE + "{any_of: [[make, ...], [ls, ...]], background: true}}]\n")
    assert decide_line(bundle, "make serve & ls").effect is Effect.ALLOW
    assert decide_line(bundle, "make serve & rm x").effect is Effect.ASK


@pytest.mark.parametrize("folder", ["/etc", "~/bin", "../x", "a/../b"])
@pytest.mark.parametrize("key", ["programs_in", "write_beneath"])
def test_a_folder_outside_the_workspace_is_refused_at_load(write_bundle, key, folder):
    with pytest.raises(PolicyInvalid, match="relative to the workspace"):
        write_bundle(RULE + f"{{any_of: [[ls]], {key}: ['{folder}']}}}}]\n")


def test_a_rule_that_trusts_its_arguments_covers_what_find_runs(write_bundle):
    bundle = write_bundle(RULE + "{any_of: [[find, ...]], trust_arguments: true}}]\n")
    assert decide_line(bundle, "find . -exec wc {} +").effect is Effect.ALLOW
    assert decide_line(bundle, "find . -exec wc {} + > x").effect is Effect.ASK


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("echo $(evil x)", "No rule allows `evil x`"),
        ("find . -exec evil {} \\;", "No rule allows `evil"),
        (
            "ls | xargs sed -n 1p",
            "`xargs sed -n 1p`: the rule `look` does not cover `…`: its value is only known when it runs",
        ),
        ("export PATH=x; ls", "it sets `PATH`, which the shell or programs take commands or code from"),
        ("export MODE=x; npm test", "`npm test`: the rule `check` does not allow setting the variable `MODE`"),
        ("for f in a; do $f; done", "the name of a command in it is not known before it runs"),
        ("ls > x", "`ls`: the rule `look` does not allow writing its output to `x`"),
        ("git log &", "`git log`: the rule `git` does not allow running it in the background"),
        ("x=1; set -a; npm test", "it sets variables, and an option of the shell that may export them"),
        ("echo $(case x in x) ls;; esac)", "it expands something that is only known when it runs"),
    ],
)
def test_the_reason_names_what_is_not_allowed_in_a_construct(line, reason):
    assert reason in decide_line(TEAM, line).reason


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("ls src/{a,b}.py", ["src/a.py", "src/b.py"]),
        ("ls {a,{b,c}d}", ["a", "bd", "cd"]),
        ("ls {a,b}{1..2}", ["a1", "a2", "b1", "b2"]),
        ("ls {c..a} {-1..1}", ["c", "b", "a", "-1", "0", "1"]),
        ("ls {} x{}", ["{}", "x{}"]),
    ],
)
def test_braces_are_expanded_as_bash_does(line, words):
    (command,) = analyze_line(line).allow_view
    assert [word.text for word in command.words[1:]] == words


@pytest.mark.parametrize("line", ["ls {a,$(b)c", "ls {01..3}", "ls {1..9..2}", "ls {,a}", "ls {{a,b}}", "ls {1..999}"])
def test_braces_of_another_form_are_left_to_a_person(line):
    assert decide_line(PREFIXES, line).effect is not Effect.ALLOW


@pytest.mark.parametrize("line", ["git log $X", 'git fetch "a$X"', 'git diff "$X"', 'sed "$X" a', 'awk "$X" a', 'find "$X"', 'printf "$X"'])  # fmt: skip
def test_an_unknown_argument_that_may_be_an_option_or_a_program_is_asked_about(line):
    assert decide_line(PREFIXES, line).effect is not Effect.ALLOW


@pytest.mark.parametrize("line", ['git log -- "$X"', 'git diff "src/$X"', 'sed -n 1p "src/$X"', 'awk 1 "src/$X"', 'find "src/$X"', "printf '%s' \"$X\"", 'git log --since="$X"'])  # fmt: skip
def test_an_unknown_argument_that_can_only_be_a_file_is_allowed(line):
    assert decide_line(PREFIXES, line).effect is Effect.ALLOW


@pytest.mark.parametrize("name", ["f", "path", "FILES", "BASE_SHA", "N"])
def test_a_name_for_data_may_be_set(name):
    assert decide_line(PREFIXES, f"{name}=$(git log) && ls").effect is Effect.ALLOW


@pytest.mark.parametrize(
    "name",
    ["PATH", "IFS", "LD_LIBRARY_PATH", "GIT_DIR", "PS4", "NODE_ENV", "MY_PATH", "npm_config_script_shell", "http_proxy", "LINES", "CI"],
)  # fmt: skip
def test_a_name_that_a_program_or_the_shell_may_read_is_asked_about(name):
    for line in (
        f"{name}=x; git log",
        f"export {name}=x; git log",
        f"read {name} < a; git log",
        f"for {name} in x; do git log; done",
    ):
        assert decide_line(PREFIXES, line).effect is not Effect.ALLOW, line
