"""The line that connects each agent CLI to a session, with the time limits that a waiting approval needs."""

from __future__ import annotations

import json
import shlex

CALL_MARGIN_S = 60
"""Seconds that an agent waits longer than we do: our answer, not its time-out, ends a call that waits for a person."""

LONGEST_TOOL_S = 600.0
"""Seconds that a call may run at most with the tools that ship."""


def call_limit_s(wait_s: float) -> int:
    """Seconds that an agent should give one call: the wait for a person, the run, and a margin."""
    return int(wait_s + LONGEST_TOOL_S) + CALL_MARGIN_S


def connect_commands(url: str, token: str, limit_s: int) -> dict[str, str]:
    """Agent -> shell line to paste.

    The settings are those that made each CLI wait in our runs of it:

    - Claude Code: `timeout` in milliseconds is the hard limit of a call. Versions from before mid-2026 end a call after
      300 s without progress whatever it says; our host sends progress far more often. Started with `--tools ''` it has
      our tools and no others.
    - Codex: `tool_timeout_sec`, 300 s by default, counted whatever happens. `required`, because a server that is not
      reached is skipped in silence otherwise. Its shell is off; some harmless tools of its own stay.
    - Gemini CLI: `timeout` in milliseconds. It keeps its own tools beside ours. User scope, because the project's
      settings file is one that people commit, with the token.

    `allowedTools`, `approve` and `trust` turn the agents' own prompts off for our tools: the policy decides here.
    """
    server = {"type": "http", "url": url, "headers": {"Authorization": f"Bearer {token}"}, "timeout": limit_s * 1000}
    config = json.dumps({"mcpServers": {"codesdk": server}})
    codex = (
        f"mcp_servers.codesdk.url={json.dumps(url)}",
        'mcp_servers.codesdk.bearer_token_env_var="CODESDK_TOKEN"',
        f"mcp_servers.codesdk.tool_timeout_sec={limit_s}",
        "mcp_servers.codesdk.required=true",
        'mcp_servers.codesdk.default_tools_approval_mode="approve"',
        "features.shell_tool=false",
        "features.unified_exec=false",
    )
    return {
        "Claude Code": f"claude --tools '' --strict-mcp-config --mcp-config {shlex.quote(config)}"
        " --allowedTools mcp__codesdk",
        "Codex": f"CODESDK_TOKEN={token} codex {' '.join(f'-c {shlex.quote(setting)}' for setting in codex)}",
        "Gemini CLI": f"gemini mcp add --scope user --transport http --timeout {limit_s * 1000} --trust"
        f" --header {shlex.quote(f'Authorization: Bearer {token}')} codesdk {url}",
    }
