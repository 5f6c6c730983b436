"""The lines to paste into agents' configurations."""

from __future__ import annotations

import json
import shlex

from codesdk.cli.session.agent_commands import call_limit_s, connect_commands

URL, TOKEN = "http://127.0.0.1:8765/mcp", "csdk_ses_x-Y_z"


def words(agent: str) -> list[str]:
    return shlex.split(connect_commands(URL, TOKEN, 410)[agent])


def test_the_limit_lets_our_own_answer_come_first():
    assert call_limit_s(wait_s=50) > 650


def test_claude_code_gets_our_server_alone_with_its_limit_in_milliseconds():
    line = words("Claude Code")

    assert line[:4] == ["claude", "--tools", "", "--strict-mcp-config"]
    assert line[-2:] == ["--allowedTools", "mcp__codesdk"]
    assert json.loads(line[line.index("--mcp-config") + 1])["mcpServers"]["codesdk"] == {
        "type": "http",
        "url": URL,
        "headers": {"Authorization": f"Bearer {TOKEN}"},
        "timeout": 410_000,
    }


def test_codex_gets_its_settings_as_toml_and_the_token_in_its_environment():
    token, program, *settings = words("Codex")

    assert (token, program) == (f"CODESDK_TOKEN={TOKEN}", "codex")
    assert settings[1::2] == [
        f'mcp_servers.codesdk.url="{URL}"',
        'mcp_servers.codesdk.bearer_token_env_var="CODESDK_TOKEN"',
        "mcp_servers.codesdk.tool_timeout_sec=410",
        "mcp_servers.codesdk.required=true",
        'mcp_servers.codesdk.default_tools_approval_mode="approve"',
        "features.shell_tool=false",
        "features.unified_exec=false",
    ]


def test_gemini_gets_header_limit_and_trust():
    line = words("Gemini CLI")

    assert line[:5] == ["gemini", "mcp", "add", "--scope", "user"]
    assert f"Authorization: Bearer {TOKEN}" in line
    assert line[line.index("--timeout") + 1] == "410000"
    assert line[-2:] == ["codesdk", URL]
