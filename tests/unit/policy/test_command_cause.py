"""The command and the words that made policy ask."""

from __future__ import annotations

import pytest

from codesdk.domain.decisions import Effect, PermissionMode
from codesdk.domain.subjects import Subject
from codesdk.policy import Call, ExampleTool, decide, load_bundle

POLICY = """
version: 1
name: test
enable: [workspace.exec]
default: ask
rules:
  - {id: all, effect: allow, command: {any_of: [[ls, ...], [sed, ...], [git, status]]}}
  - {id: force, effect: ask, command: {any_of: [[git, push, ...]], any_flag: [--force, -f]}}
  - {id: rm, effect: ask, reason: Deleting is reviewed., command: {any_of: [[rm, -rf, ...]]}}
  - {id: never, effect: deny, command: {any_of: [[dd, [/dev/sda, /dev/sdb]]]}}
  - {id: dd, effect: allow, command: {any_of: [[dd, ...]], trust_arguments: true}}
"""


def subject(mode):
    return Subject(tenant_id="ten_1", principal_id="prn_1", session_id="ses_1", permission_mode=mode)


EXEC = ExampleTool(name="workspace.exec", classification="dangerous", enabled=False)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    path = tmp_path_factory.mktemp("cause") / "policy.yaml"
    path.write_text(POLICY)
    return load_bundle(path.parent, {"workspace.exec"})


@pytest.fixture
def cause(bundle):
    def of(mode=PermissionMode.AUTO, **given):
        decision = decide(Call(name="workspace.exec", input=given), EXEC, subject(mode), bundle)
        assert decision.effect is Effect.ASK, decision
        found = decision.cause
        return found and (" ".join(found.command), [found.command[index] for index in found.words])

    return of


@pytest.mark.parametrize(
    ("line", "command", "words"),
    [
        ("git push --force origin main", "git push --force origin main", ["git", "push", "--force"]),
        ("ls && git -C x push origin -uf", "git -C x push origin -uf", ["git", "push", "-uf"]),
        ("bash -c 'git push -f'", "git push -f", ["git", "push", "-f"]),
        ("ls; rm -f -r x y", "rm -f -r x y", ["rm", "-f", "-r"]),
        # no rule allows it: the argument that its rule doesn't cover, or the command that has no rule
        ("ls && sed -i s/a/b/ x", "sed -i s/a/b/ x", ["-i"]),
        ("ls && git push", "git push", ["git", "push"]),
        ("ls && make test", "make test", ["make"]),
        # only known when it runs
        ("dd $X", "dd ", ["dd", ""]),
    ],
)
def test_the_cause_is_the_command_and_the_words_that_the_reason_is_about(cause, line, command, words):
    assert cause(command=line) == (command, words)


def test_the_cause_is_found_in_a_list_of_words_too(cause):
    assert cause(argv=["git", "push", "-f"]) == ("git push -f", ["git", "push", "-f"])


def test_a_command_whose_name_is_unknown_is_the_cause(cause):
    assert cause(command="ls; $X a") == (" a", [""])


def test_the_command_whose_output_no_rule_lets_write_is_the_cause(cause):
    assert cause(command="ls > out.txt") == ("ls", ["ls"])


def test_what_is_about_the_whole_call_has_no_cause(cause):
    assert cause(mode=PermissionMode.ASK, command="ls") is None


def test_an_allowed_call_has_no_cause(bundle):
    call = Call(name="workspace.exec", input={"command": "ls"})
    decision = decide(call, EXEC, subject(PermissionMode.AUTO), bundle)
    assert (decision.effect, decision.cause) == (Effect.ALLOW, None)
