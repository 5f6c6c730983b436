"""`codesdk connect --check` against a host that runs, with a program in Claude Code's place."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from codesdk.cli.app import app
from codesdk.cli.connecting import trial
from codesdk.cli.connecting.trial import ToolsNotSeen

SEES = """#!/bin/sh
echo 'not json'
echo '{"type":"system","subtype":"init","tools":["Bash","mcp__codesdk__workspace_read"]}'
sleep 60
"""
BLIND = """#!/bin/sh
echo '{"type":"system","subtype":"init","tools":[]}'
"""


@pytest.fixture
def claude(tmp_path, monkeypatch):
    """Puts a shell script in Claude Code's place."""

    def put(body):
        program = tmp_path / "bin" / "claude"
        program.parent.mkdir()
        program.write_text(body)
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")

    return put


def check(kind, url, token):
    return CliRunner().invoke(app, ["connect", kind, "--url", url, "--token", token, "--check", "--json"])


def test_the_clients_own_program_is_asked_for_its_tools_and_ended(standing, claude):
    claude(SEES)
    _, token = standing.open_session()
    answer = json.loads(check("claude", standing.mcp_url, token).stdout)
    assert answer["seen_by_client"] == ["workspace_read"]
    assert "workspace_read" in answer["served"]


def test_a_program_that_sees_no_tool_is_an_error(standing, claude):
    claude(BLIND)
    _, token = standing.open_session()
    assert isinstance(check("claude", standing.mcp_url, token).exception, ToolsNotSeen)


def test_a_client_that_is_not_here_is_said_not_to_have_been_asked(standing, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    _, token = standing.open_session()
    answer = json.loads(check("claude", standing.mcp_url, token).stdout)
    assert answer["seen_by_client"] is None
    assert answer["served"]


def test_a_wrong_token_is_an_error(standing):
    assert isinstance(check("generic", standing.mcp_url, "csdk_ses_wrong").exception, ToolsNotSeen)


def test_a_program_that_says_nothing_is_ended_in_time(standing, claude, monkeypatch):
    monkeypatch.setattr(trial, "LIMIT_S", 2.0)
    claude("#!/bin/sh\nsleep 60\n")
    _, token = standing.open_session()
    assert isinstance(check("claude", standing.mcp_url, token).exception, ToolsNotSeen)
