"""Shell lines that connect an agent CLI to a session, with timeouts long enough for an approval."""

from __future__ import annotations

import json
import shlex

CALL_MARGIN_S = 60
"""Seconds that an agent waits longer than the host, so that a call ends with our answer and not with the agent's
timeout.
"""

LONGEST_TOOL_S = 600.0
"""Maximum seconds that a call may run with the tools that ship."""


def call_limit_s(wait_s: float) -> int:
    """Return the timeout that an agent should give one call: the wait for approval, the run, and a margin."""
    return int(wait_s + LONGEST_TOOL_S) + CALL_MARGIN_S


def connect_commands(url: str, token: str, limit_s: int) -> dict[str, str]:
    """Return the shell line to paste, by agent.

    The options are those that made each CLI wait in our tests:

    - Claude Code: `timeout` in milliseconds is the hard limit of a call. Versions before mid-2026 end a call after
    300 s without progress regardless; our host sends progress far more often. With `--tools ''` it has only our
    tools.
    - Codex: `tool_timeout_sec`, 300 s by default, is a hard limit. `required`, because it silently skips an
    unreachable server otherwise. Its shell is off; some harmless built-in tools remain.
    - Gemini CLI: `timeout` in milliseconds. It keeps its own tools. User scope, because people commit the project's
    settings file, which would then contain the token.

    `allowedTools`, `approve` and `trust` turn off the agents' own prompts for our tools, because policy decides.
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
