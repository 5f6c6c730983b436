"""`codesdk connect --check` against a running host, with a program in Claude Code's place."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from codesdk.cli.app import app
from codesdk.cli.client_config import client_check
from codesdk.cli.client_config.client_check import BuiltInsOn, ClientAbsent, ClientSilent, ToolsNotSeen
from codesdk.cli.client_config.endpoint_check import NoSession, TokenRefused
from codesdk.cli.stack.operator_key import write_key
from codesdk.mcphost.stdio_bridge.host_status import HostNotReady
from codesdk.mcphost.stdio_bridge.main import HostUnreachable
from codesdk.tenancy.principal import Unauthenticated
from receivers import receiving

SEES = """#!/bin/sh
echo 'not json'
echo '{"type":"system","subtype":"init","tools":["ToolSearch","mcp__codesdk__workspace_read"]}'
"""
BLIND = """#!/bin/sh
echo '{"type":"system","subtype":"init","tools":[]}'
"""


ASKS = """#!{python}
import json, os, pathlib, re, subprocess, sys, time, urllib.request
home = pathlib.Path(os.environ["HOME"])
words = " ".join(path.read_text() for path in home.rglob("*") if path.suffix in (".json", ".toml"))
assert {url!r} in words, words
given = os.environ.get("OPENAI_BASE_URL") or os.environ.get("KIMI_MODEL_BASE_URL") or os.environ.get("GOOGLE_GEMINI_BASE_URL")
url = given or re.search(r'"?base_?URL"?[:=] ?"([^"]+)"', " ".join([*sys.argv, *os.environ.values()]), re.I)[1]
path, key, one = {{
    "codex": ("/responses", "input", {{"type": "function_call_output"}}),
    "gemini": ("/v1beta/models/none:generateContent", "contents", {{"parts": [{{"functionResponse": {{}}}}]}}),
}}.get({kind!r}, ("/chat/completions", "messages", {{"role": "tool"}}))
done, answer = 0, ""
while "Done." not in answer:
    body = json.dumps({{"tools": {tools}, key: [one] * done}}).encode()
    answer = urllib.request.urlopen(urllib.request.Request(url + path, body)).read().decode()
    done += 1
    if {runs} and (command := re.search("touch [a-zA-Z0-9_/.-]+", answer)):
        subprocess.run(command[0].split(), check=True)
time.sleep(60)
"""
OFFERS = {
    "codex": [{"type": "namespace", "name": "mcp__codesdk", "tools": [{"name": "workspace_read"}]}],
    "gemini": [{"functionDeclarations": [{"name": "mcp_codesdk_workspace_read"}]}],
    "kimi": [{"type": "function", "function": {"name": "mcp__codesdk__workspace_read"}}],
    "opencode": [{"type": "function", "function": {"name": "codesdk_workspace_read"}}],
    "qwen": [{"type": "function", "function": {"name": "mcp__codesdk__workspace_read"}}],
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


def test_a_program_that_lists_a_tool_of_its_own_fails_the_check(standing, program):
    program(SEES.replace("ToolSearch", "Bash"))
    _, token = standing.open_session()
    fault = check("claude", standing.mcp_url, token).exception
    assert isinstance(fault, BuiltInsOn), fault
    assert fault.details["offered"] == ["Bash"]


def test_a_program_that_sees_no_tool_is_an_error(standing, program):
    program(BLIND)
    _, token = standing.open_session()
    assert isinstance(check("claude", standing.mcp_url, token).exception, ToolsNotSeen)


@pytest.mark.parametrize("kind", ["generic", "cursor", "vscode"])
def test_a_client_that_has_no_program_to_ask_is_said_not_to_have_been_asked(standing, kind):
    _, token = standing.open_session()
    answer = json.loads(check(kind, standing.mcp_url, token).stdout)
    assert answer["seen_by_client"] is None
    assert answer["served"]


def test_a_client_whose_program_is_not_here_is_an_error_that_says_so(standing, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    _, token = standing.open_session()
    fault = check("claude", standing.mcp_url, token).exception
    assert isinstance(fault, ClientAbsent)
    assert "`claude`" in fault.message
    assert "Install it" in fault.advice()


def test_a_program_that_cannot_be_started_is_an_error_that_says_so(standing, program):
    program("#!/no/such/interpreter\n", "codex")
    _, token = standing.open_session()
    fault = check("codex", standing.mcp_url, token).exception
    assert isinstance(fault, ToolsNotSeen)
    assert "cannot be started" in fault.message


def test_a_wrong_token_is_an_error_that_says_where_one_is_had(standing):
    fault = check("generic", standing.mcp_url, "csdk_ses_wrong").exception
    assert isinstance(fault, TokenRefused)
    assert "codesdk sessions open" in fault.advice()


def test_the_token_of_a_session_that_ended_is_refused(standing):
    session, token = standing.open_session()
    standing.services.sessions.close(session.tenant_id, session.id)
    assert isinstance(check("claude", standing.mcp_url, token).exception, TokenRefused)


def test_a_host_that_is_down_is_an_error_that_says_what_to_start():
    fault = check("generic", "http://127.0.0.1:9/mcp", "csdk_ses_x").exception
    assert isinstance(fault, HostUnreachable)
    assert "codesdk up" in fault.advice()


@pytest.mark.parametrize("url", ["not an address", "http://", "ftp://127.0.0.1/mcp"])
def test_an_address_that_is_none_is_an_error(url):
    assert isinstance(check("generic", url, "csdk_ses_x").exception, HostUnreachable)


@pytest.mark.parametrize("path", ["/nothing", "/docs"])
def test_an_address_with_another_path_is_an_error(standing, path):
    _, token = standing.open_session()
    assert isinstance(check("generic", standing.url + path, token).exception, NoSession | TokenRefused)


def test_a_program_that_cannot_be_started_is_an_error_and_no_defect(standing, program):
    program("no program of this machine")
    _, token = standing.open_session()
    fault = check("claude", standing.mcp_url, token).exception
    assert isinstance(fault, ToolsNotSeen)
    assert "cannot be started: exec format error" in fault.message


def test_a_program_that_says_nothing_is_ended_in_time(standing, program, monkeypatch):
    monkeypatch.setattr(client_check, "LIMIT_S", 2.0)
    program("#!/bin/sh\nsleep 60\n")
    _, token = standing.open_session()
    fault = check("claude", standing.mcp_url, token).exception
    assert isinstance(fault, ClientSilent)
    assert "by hand" in fault.advice()


def test_what_was_written_is_told_before_the_check_comes_to_nothing(standing, program, tmp_path):
    program(BLIND)
    _, token = standing.open_session()
    place = tmp_path / ".mcp.json"
    line = [
        "connect",
        "claude",
        "--url",
        standing.mcp_url,
        "--token",
        token,
        "--write",
        "--file",
        str(place),
        "--check",
    ]
    ended = CliRunner().invoke(app, line)
    assert isinstance(ended.exception, ToolsNotSeen)
    assert "Wrote the entry of Claude Code" in ended.output
    assert "codesdk" in place.read_text()


@pytest.mark.parametrize("kind", OFFERS)
def test_a_program_that_tells_only_its_model_is_heard_by_what_stands_in_its_place(standing, program, kind):
    url, (_, token) = standing.mcp_url, standing.open_session()
    program(asking(kind, url), kind)
    ended = check(kind, url, token)
    assert ended.exit_code == 0, (ended.output, ended.exception)
    assert json.loads(ended.stdout)["seen_by_client"] == ["workspace_read"]


def asking(kind, url, tools=(), *, runs=False):
    offered = repr([*OFFERS[kind], *tools])
    return ASKS.format(python=sys.executable, kind=kind, url=url, tools=offered, runs=runs)


@pytest.mark.parametrize("kind", [kind for kind in OFFERS if kind != "codex"])
def test_a_program_that_runs_the_shell_which_the_model_asks_for_fails_the_check(standing, program, kind):
    url, (_, token) = standing.mcp_url, standing.open_session()
    program(asking(kind, url, runs=True), kind)
    fault = check(kind, url, token).exception
    assert isinstance(fault, BuiltInsOn), fault
    assert fault.details["ran"] == ["shell"]
    assert "shell" in fault.message


@pytest.mark.parametrize(
    ("kind", "tool", "name"),
    [
        ("codex", {"type": "web_search"}, "web_search"),
        ("codex", {"type": "custom", "name": "apply_patch"}, "apply_patch"),
        ("codex", {"type": "namespace", "name": "agents", "tools": [{"name": "spawn"}]}, "agents__spawn"),
        ("gemini", {"functionDeclarations": [{"name": "run_shell_command"}]}, "run_shell_command"),
        ("gemini", {"googleSearch": {}}, "googleSearch"),
        ("qwen", {"type": "function", "function": {"name": "tool_of_a_newer_version"}}, "tool_of_a_newer_version"),
    ],
)
def test_a_program_that_offers_a_tool_of_its_own_fails_the_check(standing, program, kind, tool, name):
    url, (_, token) = standing.mcp_url, standing.open_session()
    program(asking(kind, url, [tool]), kind)
    fault = check(kind, url, token).exception
    assert isinstance(fault, BuiltInsOn), fault
    assert fault.details == {"ran": [], "offered": [name]}


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


AWAY = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"Not now. [DATABASE_GONE]","data":{"code":"DATABASE_GONE"}}}'
BUSY = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"This session makes too many requests."}}'


@pytest.mark.parametrize(
    ("answered", "said", "advice"),
    [
        ((429, {"retry-after": "7"}, BUSY), "HTTP 429 Too Many Requests: This session makes too", "Try again in 7 s."),
        ((503, {"retry-after": "1"}, AWAY), "[DATABASE_GONE]", "its database is not"),
        ((503, {}, b"<html>no server</html>"), "HTTP 503 Service Unavailable.", "starting or stopping"),
        ((502, {}, b""), "HTTP 502 Bad Gateway.", "a proxy's answer"),
        ((500, {}, b"[]"), "HTTP 500 Internal Server Error.", "its log says more"),
    ],
)
@pytest.mark.parametrize("late", [False, True], ids=["at once", "to the list of tools"])
def test_a_host_that_cannot_serve_now_is_told_by_what_it_answers(answered, said, advice, late):
    with receiving() as host:
        host.answer = lambda got: (405, {}, b"") if late and not got.body else answered
        fault = check("generic", f"{host.url}/mcp", "csdk_ses_x").exception
    assert isinstance(fault, HostNotReady), fault
    assert said in fault.message
    assert advice in fault.advice()
    assert fault.retryable
    assert "not an MCP host" not in str(fault)


def test_the_bridge_tells_such_a_host_alike():
    with receiving() as host:
        host.answer = lambda _: (503, {"retry-after": "1"}, AWAY)
        result = CliRunner().invoke(app, ["mcp", "--url", f"{host.url}/mcp", "--token", "csdk_ses_x"])
    assert isinstance(result.exception, HostNotReady)
    assert "its database is not" in result.exception.advice()


@pytest.fixture
def daemon(stack):
    """The stack as its operator's commands find it."""
    principal, key = stack.principal()
    write_key(stack.settings.data_dir, key)
    return stack, principal


def connected(stack, *more):
    line = ["connect", "generic", "--json", "--data-dir", str(stack.settings.data_dir), *more]
    ended = CliRunner().invoke(app, line, env={"CODESDK_TOKEN": "", "CODESDK_URL": ""})
    assert ended.exit_code == 0, (ended.output, ended.exception)
    token = json.loads(ended.stdout)["token"]
    return stack.services.directory.subject(token).session_id, ended.stderr


def test_the_only_open_session_is_used_and_its_workspace_told(daemon, tmp_path):
    stack, principal = daemon
    closed, _ = stack.open_for(principal)
    stack.services.sessions.close(closed.tenant_id, closed.id)
    (tmp_path / "project").mkdir()
    first, told = connected(stack, "--workspace", str(tmp_path / "project"))
    assert f"Opened session {first}" in told
    assert f"The agent sees a copy of {tmp_path / 'project'}" in told
    again, told = connected(stack)
    assert again == first
    assert f"Using the only open session, {first}" in told
    assert f"The agent sees a copy of {tmp_path / 'project'}" in told


def test_a_new_session_says_that_it_is_empty_and_how_many_others_are_open(daemon):
    stack, principal = daemon
    stack.open_for(principal)
    stack.open_for(principal)
    fresh, told = connected(stack)
    assert f"Opened session {fresh}, not one of the 2 that are open" in told
    assert "an empty workspace (--workspace" in told


def test_a_directory_for_the_workspace_needs_a_session_of_its_own(daemon, tmp_path):
    stack, principal = daemon
    only, _ = stack.open_for(principal)
    fresh, _ = connected(stack, "--workspace", str(tmp_path))
    assert fresh != only.id


def test_the_only_open_session_of_somebody_else_is_not_used(daemon):
    stack, _ = daemon
    theirs, _ = stack.open_for(stack.principal()[0])
    fresh, told = connected(stack)
    assert fresh != theirs.id
    assert "Opened session" in told


def test_a_token_is_issued_only_for_an_open_session_of_the_callers_own(stack):
    (owner, key), (_, other) = stack.principal(), stack.principal()
    session, token = stack.open_for(owner)
    where = f"/v1/sessions/{session.id}/tokens"
    with stack.http(other) as client:
        assert client.post(where).json()["code"] == "SESSION_UNKNOWN"
    with stack.http(key) as client:
        issued = client.post(where)
        assert issued.status_code == 201
        second = issued.json()["token"]
        assert second != token
        subject = stack.services.directory.subject
        assert subject(token).session_id == subject(second).session_id == session.id
        client.delete(f"/v1/sessions/{session.id}")
        assert client.post(where).json()["code"] == "SESSION_UNKNOWN"
        for each in (token, second):
            with pytest.raises(Unauthenticated):
                subject(each)
