"""`codesdk connect --check` against a host that runs, with a program in Claude Code's place."""

from __future__ import annotations

import json
import sys
from pathlib import Path

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


ASKS = """#!{python}
import json, os, pathlib, re, time, urllib.request
home = pathlib.Path(os.environ["HOME"])
words = [path.read_text() for path in home.rglob("*") if path.suffix in (".json", ".toml")]
written = re.search(r'"?base_?URL"? ?[:=] ?"([^"]+)"', " ".join(words), re.I)
url = os.environ.get("OPENAI_BASE_URL") or os.environ.get("GOOGLE_GEMINI_BASE_URL") or written[1]
assert re.search(re.escape({url!r}), " ".join(words)), words
body = json.dumps({{"tools": {tools}}}).encode()
for path in ("/title", "/turn"):
    try:
        urllib.request.urlopen(urllib.request.Request(url + path, body if path == "/turn" else b"{{}}"))
    except urllib.error.HTTPError as error:
        assert error.code == 400
time.sleep(60)
"""
OFFERS = {
    "codex": [{"type": "namespace", "name": "mcp__codesdk", "tools": [{"name": "workspace_read"}]}],
    "gemini": [{"functionDeclarations": [{"name": "mcp_codesdk_workspace_read"}, {"name": "other"}]}],
    "opencode": [{"type": "function", "function": {"name": "codesdk_workspace_read"}}],
    "qwen": [{"type": "function", "function": {"name": "mcp__codesdk__workspace_read"}}, {"type": "web_search"}],
}


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Puts a script in a client's place."""

    def put(body, name="claude"):
        made = tmp_path / "bin" / name
        made.parent.mkdir()
        made.write_text(body)
        made.chmod(0o755)
        monkeypatch.setenv("PATH", f"{made.parent}:/usr/bin:/bin")

    return put


def check(kind, url, token):
    return CliRunner().invoke(app, ["connect", kind, "--url", url, "--token", token, "--check", "--json"])


def test_the_clients_own_program_is_asked_for_its_tools_and_ended(standing, program):
    program(SEES)
    _, token = standing.open_session()
    answer = json.loads(check("claude", standing.mcp_url, token).stdout)
    assert answer["seen_by_client"] == ["workspace_read"]
    assert "workspace_read" in answer["served"]


def test_a_program_that_sees_no_tool_is_an_error(standing, program):
    program(BLIND)
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


def test_a_program_that_says_nothing_is_ended_in_time(standing, program, monkeypatch):
    monkeypatch.setattr(trial, "LIMIT_S", 2.0)
    program("#!/bin/sh\nsleep 60\n")
    _, token = standing.open_session()
    assert isinstance(check("claude", standing.mcp_url, token).exception, ToolsNotSeen)


@pytest.mark.parametrize("kind", OFFERS)
def test_a_program_that_tells_only_its_model_is_heard_by_what_stands_in_its_place(standing, program, kind):
    url, (_, token) = standing.mcp_url, standing.open_session()
    program(ASKS.format(python=sys.executable, url=url, tools=repr(OFFERS[kind])), kind)
    ended = check(kind, url, token)
    assert ended.exit_code == 0, ended.output
    assert json.loads(ended.stdout)["seen_by_client"] == ["workspace_read"]


def test_a_program_that_fails_is_quoted(standing, program):
    program("#!/bin/sh\necho 'no such key: httpUrl' >&2\nexit 3\n", "gemini")
    _, token = standing.open_session()
    fault = check("gemini", standing.mcp_url, token).exception
    assert isinstance(fault, ToolsNotSeen)
    assert "no such key: httpUrl" in fault.message
    assert token not in str(fault)


def test_the_piece_for_clients_that_start_programs_names_ours_with_its_path(standing):
    _, token = standing.open_session()
    line = ["connect", "generic", "--url", standing.mcp_url, "--token", token, "--json"]
    written = json.loads(json.loads(CliRunner().invoke(app, line).stdout)["configuration"])
    assert Path(written["mcpServers"]["codesdk"]["command"]).is_file()
