"""Policy's two views of a shell line, compared with what a real bash runs.

The ask-deny view must have every command that bash runs, unless it reports that it is incomplete; an allowed line runs
nothing that no rule names.
"""

from __future__ import annotations

import json
import random
from collections import Counter

import pytest

from codesdk.domain.decisions import Classification, Effect
from codesdk.domain.subjects import Subject
from codesdk.policy import Call, ExampleTool, decide, load_bundle
from codesdk.policy.shell.command_analysis import analyze_line
from sandboxes import run
from shell_lines import HARNESS, line

LINES = 400
EXEC = ExampleTool(name="workspace.exec", classification=Classification.DANGEROUS)
SUBJECT = Subject(tenant_id="ten_1", principal_id="prn_1", session_id="ses_1")
SEEDS = (1, 2)


@pytest.fixture
def bash(sandbox):
    """Runs lines in the sandbox and gives the argument lists that the stubs saw."""

    def go(lines):
        ran = run(sandbox, "python3", "-c", HARNESS, stdin=json.dumps(lines).encode(), timeout_s=110.0)
        assert ran.result.exit_code == 0, ran.stderr[-2000:]
        answers = json.loads(ran.stdout)
        assert len(answers) == len(lines)
        return answers

    return go


@pytest.fixture
def bundle(tmp_path):
    """Everything that runs something else is allowed, and of the programs `alpha`; `rm` is denied."""
    (tmp_path / "policy.yaml").write_text(
        "version: 1\ndefault: ask\nenable: [workspace.exec]\nrules:\n"
        "- id: some\n  effect: allow\n  tool: workspace.exec\n  command: {any_of: [[[alpha, echo, printf, env, nice, timeout, "
        "nohup, command, exec, builtin, eval, time, xargs, stdbuf, setsid, bash, sh, find, read, wait, trap, coproc, source, "
        "break, test, '[', '[['], ...]], background: true}\n"
        "- id: never\n  effect: deny\n  tool: workspace.exec\n  command: {any_of: [[rm, ...]]}\n"
    )
    return load_bundle(tmp_path, ["workspace.exec"])


@pytest.mark.engine
@pytest.mark.parametrize("seed", SEEDS)
def test_no_command_that_bash_runs_escapes_the_view_that_asks_and_denies(bash, bundle, seed):
    rng = random.Random(seed)
    lines = [line(rng, rng.choice((0, 0, 1, 2, 3))) for _ in range(LINES)]
    answers = bash(lines)
    assert sum(bool(answer) for answer in answers) > LINES / 2, "the lines hardly run anything: they prove nothing"
    escaped, allowed, effects = [], [], Counter()
    for text, runs in zip(lines, answers, strict=True):
        ran = {argv[0] for argv in runs}
        views = analyze_line(text)
        effect = decide(Call(name=EXEC.name, input={"command": text}), EXEC, SUBJECT, bundle).effect
        effects[effect] += 1
        if not views.opaque and not ran <= {command.name for command in views.seen}:
            escaped.append((text, sorted(ran)))
        if effect is Effect.ALLOW and not ran <= {"alpha"}:
            allowed.append((text, sorted(ran)))
    assert not escaped, escaped[:5]
    assert not allowed, allowed[:5]
    assert min(effects[effect] for effect in Effect) > LINES / 40, effects


@pytest.mark.engine
def test_a_line_that_policy_allows_runs_exactly_the_words_that_policy_saw(bash):
    rng = random.Random(7)
    lines = [line(rng, 0) for _ in range(LINES)]
    allowed = [(text, views) for text in lines if (views := analyze_line(text)).allow_view is not None]
    assert len(allowed) > LINES / 10
    for (text, views), runs in zip(allowed, bash([text for text, _ in allowed]), strict=True):
        if any(word.glob or not word.literal for command in views.allow_view for word in command.words):
            continue  # which files a pattern names is the workspace's to say
        if any(mark in text for mark in ("~", "xargs", "eval")):  # each makes other words of those that stand there
            continue
        whole = [[word.text for word in command.words] for command in views.allow_view]
        for name, *arguments in runs:
            ends = [words[at + 1 :] for words in whole for at, word in enumerate(words) if word.endswith(name)]
            assert arguments in ends, (text, name, arguments)
